-- The record (see record.go): format and flags, due, scheduled, op; then the attempts, if
-- ATTEMPTED; then the score from before an export, if EXPORTED; then the reason of the
-- last release and its time in ms, as in "why @1796119300456", if NOTED; then the body. A
-- body that begins with byte 2, 3 or 4 makes a record of that format. In format 4 a mark (8
-- bytes) and a group (I1 and text) follow the byte, then a body of another format, see
-- group.go. In format 3 planned (I6) and runs (I4) of a recurring task follow the byte, see
-- recurrence.go. Scripts read no more of a body. A record's first byte is 16 times its format,
-- and flags: 1 REDELIVERED, 2 EXPORTED, 4 NOTED, 8 ATTEMPTED. They are written
-- out, see lib_args.

-- known reports whether a record is of format 1, 2, 3 or 4.
local function known(record)
  local first = string.byte(record)
  return first and first >= 16 and first < 80
end

-- format_of returns the format of a record with a body, times 16.
local function format_of(body)
  local first = string.byte(body)
  return first and first > 1 and first < 5 and first * 16 or 16
end

-- inside returns where the body behind the group begins.
local function inside(body) return string.byte(body) == 4 and 11 + (string.byte(body, 10) or 0) or 1 end

-- rule_at returns where the rule of a recurring task begins in a body; nil: it has none.
local function rule_at(body)
  local at = inside(body)
  return string.byte(body, at) == 3 and at or nil
end

-- run_of returns planned and runs of a recurring task, whose rule is at `at`.
local function run_of(body, at) return struct.unpack('>I6I4', body, at + 1) end

-- with_run returns the body of a recurring task with another planned and runs.
local function with_run(body, at, planned, runs)
  return string.sub(body, 1, at) .. struct.pack('>I6I4', planned, runs) .. string.sub(body, at + 11)
end

local function parse(record)
  local r = {attempts = 0}
  local flags, at
  flags, r.due, r.scheduled, r.op, at = struct.unpack('>BI6I6c6', record)
  r.format, r.redelivered = flags - flags % 16, flags % 2 == 1
  if flags % 16 >= 8 then -- ATTEMPTED
    r.attempts, at = struct.unpack('>I2', record, at)
  end
  if flags % 4 >= 2 then -- EXPORTED
    r.prior, at = struct.unpack('>d', record, at)
  end
  if flags % 8 >= 4 then -- NOTED
    r.note, at = struct.unpack('>I2c0', record, at)
    local stamp = string.sub(r.note, -15) -- a reason may have no time
    if string.find(stamp, ' @' .. string.rep('%d', 13)) then
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
  if r.redelivered then flags = flags + 1 end
  if r.attempts > 0 then
    flags = flags + 8
    attempts = struct.pack('>I2', r.attempts)
  end
  if r.prior then
    flags = flags + 2
    prior = struct.pack('>d', r.prior)
  end
  if r.note then
    flags = flags + 4
    note = r.noted and r.note .. string.format(' @%013.0f', r.noted) or r.note
    note = struct.pack('>I2c0', #note, note)
  end
  return struct.pack('>BI6I6', flags, r.due, r.scheduled) .. r.op .. attempts .. prior .. note .. r.body
end
