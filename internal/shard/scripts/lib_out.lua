-- out_now says that a message may be out of a version that is due in this ms; the one that
-- replaces it is due in the next ms then. So is one that replaces that one. It reads
-- records of every format.
local function out_now(id, record)
  local due = #record >= 7 and struct.unpack('>I6', record, 2)
  if due ~= now then return due == now + 1 end
  local score = redis.call('ZSCORE', KEYS[1], id)
  return not score or tonumber(score) < 0 or string.byte(record) ~= 16
end
