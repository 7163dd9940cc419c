-- member_of returns the mark (8 bytes) and the group of a stored record, as one text; nil if
-- it is in no group, or cut short. See group.go.
local function member_of(record)
  local first = string.byte(record)
  if not first or first < 64 or first >= 80 then return nil end
  local flags, at = first % 16, 20
  if flags >= 8 then at = at + 2 end
  if flags % 4 >= 2 then at = at + 8 end
  if flags % 8 >= 4 then
    local high, low = string.byte(record, at, at + 1)
    at = at + 2 + (high or 0) * 256 + (low or 0)
  end
  local n = string.byte(record, at + 9)
  if not n or #record < at + 9 + n then return nil end
  return string.sub(record, at + 1, at + 8) .. string.sub(record, at + 10, at + 9 + n)
end

-- last_put returns the ms after which a body must not be stored any more, 5 min after its
-- mark. The topic's index may have lost its entry by then.
local function last_put(body)
  if string.byte(body) ~= 4 or #body < 10 then return math.huge end
  return struct.unpack('>I4', body, 2) * 1000 + 300000
end
