-- Returns a part of a record, for scripts that read many. It uses lib_record.

-- payload_at returns the position of the payload in a record; at is where its body begins.
local function payload_at(record, at)
  local function number(bytes)
    local n = 0
    for i = at, at + bytes - 1 do n = n * 256 + (string.byte(record, i) or 0) end
    at = at + bytes
    return n
  end
  local function skip(bytes)
    local n = number(bytes)
    at = at + n
  end
  local first = number(1)
  if first == 4 then -- the group, then a body of another format
    at = at + 8
    skip(1)
    first = number(1)
  end
  if first == 3 then -- the rule, then a body of format 1 or 2
    at = at + 23
    skip(1)
    skip(1)
    first = number(1)
  end
  if first == 2 then -- routing key, properties with headers
    skip(1)
    skip(4)
  elseif first > 0 then
    skip(1)
    for _ = 1, number(1) do
      skip(1)
      skip(2)
    end
  end
  return at
end

-- part_of returns a part of a record. wanted 2: all; 1: without the payload; 0: without the
-- rule, content type, properties and headers too. The group stays. A record that is cut short is returned as it is.
local function part_of(record, wanted)
  if wanted == 2 then return record end
  if not known(record) or #record < 21 then return string.sub(record, 1, 21) end
  local flags, size = string.byte(record) % 16, 19
  if flags >= 8 then size = size + 2 end
  if flags % 4 >= 2 then size = size + 8 end
  if flags % 8 >= 4 and #record >= size + 2 then size = size + 2 + struct.unpack('>I2', record, size + 1) end
  if wanted == 0 and string.byte(record) >= 64 then size = size + 10 + (string.byte(record, size + 10) or 0) end
  if wanted == 1 then size = payload_at(record, size + 1) - 1 end
  return string.sub(record, 1, size)
end
