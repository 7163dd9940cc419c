-- out_now reports whether a version that replaces this one, due now, must be due in the
-- next ms: a message of this one, due in this ms, may be out, or this one replaced such a
-- version itself. It reads records of every format.
local function out_now(id, record)
  local due = #record >= 7 and struct.unpack('>I6', record, 2)
  if due ~= now then return due == now + 1 end
  local score, first = redis.call('ZSCORE', KEYS[1], id), string.byte(record)
  return not score or tonumber(score) < 0 or first ~= 16 and first ~= 32 and first ~= 48 and first ~= 64
end
