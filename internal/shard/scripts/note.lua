#!lua flags=allow-oom
-- uses: past
-- Tells consumers that a producer cancelled a task, or asked to move it, whose
-- message may be with them.
-- KEYS  past
-- ARGV  at (ms, by the clock of the task's shard; "": only ask whether there is a
--       past), due (ms it is to be moved to; "": cancelled), keep (ms)
-- Returns 1 or 0: was there a past before.
-- Executed twice: the same, and noted once.
local there = redis.call('EXISTS', past)
if ARGV[1] == '' then return there end
if ARGV[2] == '' then
  raise('cancelled', tonumber(ARGV[1]))
else
  redis.call('HSET', past, 'wished', ARGV[1], 'wish', ARGV[2])
end
keep(tonumber(ARGV[3]))
return there
