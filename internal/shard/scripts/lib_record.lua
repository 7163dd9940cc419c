-- The record (see record.go): format and flags, due, scheduled, op; then the attempts, if
-- ATTEMPTED; then the score from before an export, if EXPORTED; then the reason of the
-- last release and its time in ms, as in "why @1796119300456", if NOTED; then the body. A
-- body that begins with byte 2 or 3 makes a record of that format. Format 3 is a recurring
-- task: after the byte come planned (I6) and runs (I4), see recurrence.go. Scripts read no
-- more of it.
local FORMAT, REDELIVERED, EXPORTED, NOTED, ATTEMPTED = 16, 1, 2, 4, 8
local RECURRING = 3 * FORMAT
local STAMP = ' @' .. string.rep('%d', 13)

-- known reports whether a record is of format 1, 2 or 3.
local function known(record)
  local first = string.byte(record)
  return first and first >= FORMAT and first < 4 * FORMAT
end

-- format_of returns the format of a record with a body, times FORMAT.
local function format_of(body)
  local first = string.byte(body)
  return (first == 2 or first == 3) and first * FORMAT or FORMAT
end

-- run_of returns planned and runs of a recurring task.
local function run_of(body) return struct.unpack('>I6I4', body, 2) end

-- with_run returns the body of a recurring task with another planned and runs.
local function with_run(body, planned, runs) return '\3' .. struct.pack('>I6I4', planned, runs) .. string.sub(body, 12) end

local function parse(record)
  local r = {attempts = 0}
  local flags, at
  flags, r.due, r.scheduled, r.op, at = struct.unpack('>BI6I6c6', record)
  r.format, r.redelivered = flags - flags % FORMAT, flags % 2 == 1
  if flags % 16 >= ATTEMPTED then
    r.attempts, at = struct.unpack('>I2', record, at)
  end
  if flags % 4 >= EXPORTED then
    r.prior, at = struct.unpack('>d', record, at)
  end
  if flags % 8 >= NOTED then
    r.note, at = struct.unpack('>I2c0', record, at)
    local stamp = string.sub(r.note, -15) -- a reason may have no time
    if string.find(stamp, STAMP) then
      r.note, r.noted = string.sub(r.note, 1, -16), tonumber(string.sub(stamp, 3))
    end
  end
  r.body = string.sub(record, at)
  return r
end

-- open returns nil for a record that is damaged or of a newer format. An error would
-- stop the script, and with it all other tasks of the shard.
local function open(record)
  if not known(record) then return nil end
  local readable, r = pcall(parse, record)
  return readable and r or nil
end

local function seal(r)
  local flags, attempts, prior, note = r.format or format_of(r.body), '', '', ''
  if r.redelivered then flags = flags + REDELIVERED end
  if r.attempts > 0 then
    flags = flags + ATTEMPTED
    attempts = struct.pack('>I2', r.attempts)
  end
  if r.prior then
    flags = flags + EXPORTED
    prior = struct.pack('>d', r.prior)
  end
  if r.note then
    flags = flags + NOTED
    note = r.noted and r.note .. string.format(' @%013.0f', r.noted) or r.note
    note = struct.pack('>I2c0', #note, note)
  end
  return struct.pack('>BI6I6', flags, r.due, r.scheduled) .. r.op .. attempts .. prior .. note .. r.body
end
