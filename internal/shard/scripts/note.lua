#!lua flags=allow-oom
-- uses: args rights history
-- Notes for consumers that a producer cancelled a task, or asked to move it, whose
-- message they may have.
-- KEYS  history
-- ARGV  at (ms, by the clock of the task's shard; "": only ask whether there is a
--       history), due (ms, the requested due; "": cancelled), keep (ms)
-- Returns 1 or 0: whether there was a history before.
-- Executed twice: noted once; the second time there is a history.
expect(1, 3)
if ARGV[1] ~= '' then whole('at', ARGV[1]) end
if ARGV[2] ~= '' then whole('due', ARGV[2], -MOST_MS) end
local kept = whole('keep', ARGV[3], 1)
local there = redis.call('EXISTS', history)
if ARGV[1] == '' then return there end
may(history, 'PTTL', 'PEXPIRE')
if ARGV[2] == '' then
  raise('cancelled', tonumber(ARGV[1]))
else
  redis.call('HSET', history, 'requested', ARGV[1], 'requested_due', ARGV[2])
end
keep(kept)
return there
