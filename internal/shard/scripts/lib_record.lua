-- The record, format 1 (see record.go): version, flags, attempts, due,
-- scheduled, op; then the score from before a loan, if LENT; then the reason of
-- the last release, if NOTED; then the body, which scripts never look into.
local REDELIVERED, LENT, NOTED = 1, 2, 4

local function parse(record)
  local r = {}
  local at
  r.version, r.flags, r.attempts, r.due, r.scheduled, r.op, at = struct.unpack('>BBI2I6I6c8', record)
  r.redelivered = r.flags % 2 == 1
  if r.flags % 4 >= 2 then
    r.prior, at = struct.unpack('>d', record, at)
  end
  if r.flags % 8 >= 4 then
    r.note, at = struct.unpack('>I2c0', record, at)
  end
  r.body = string.sub(record, at)
  return r
end

-- open returns nil for a record that is damaged or of a newer format: an error
-- would stop the script, and with it every other task of the shard.
local function open(record)
  if string.byte(record) ~= 1 then return nil end
  local readable, r = pcall(parse, record)
  return readable and r or nil
end

local function seal(r)
  local flags, prior, note = 0, '', ''
  if r.redelivered then flags = flags + REDELIVERED end
  if r.prior then
    flags = flags + LENT
    prior = struct.pack('>d', r.prior)
  end
  if r.note then
    flags = flags + NOTED
    note = struct.pack('>I2c0', #r.note, r.note)
  end
  return struct.pack('>BBI2I6I6', 1, flags, r.attempts, r.due, r.scheduled) .. r.op .. prior .. note .. r.body
end
