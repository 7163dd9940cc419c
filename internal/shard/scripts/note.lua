#!lua flags=allow-oom
-- uses: args rights history
-- Notes for consumers that a producer cancelled tasks: they may have an older version of
-- one, in a handler or in their queue.
-- KEYS  history of each task
-- ARGV  keep (ms), then for each task: at (ms, by the clock of the task's shard)
-- Returns for each task 1 if a consumer has had a delivery of it, and may have stored it again before
--       it could see the note; else 0.
-- Executed twice: noted once, and the same answer.
if #KEYS == 0 or #ARGV ~= #KEYS + 1 then refuse('a time for each key', #ARGV - 1) end
if #KEYS > 1000 then refuse('at most 1000 tasks', #KEYS) end
local kept, times, seen = whole('keep', ARGV[1], 1), {}, {}
for i = 1, #KEYS do times[i] = whole('at', ARGV[i + 1]) end
for i = 1, #KEYS do
  may('PTTL', KEYS[i])
  may('PEXPIRE', KEYS[i], '')
end
for i = 1, #KEYS do
  history = KEYS[i]
  seen[i] = redis.call('HGET', history, 'newest') and 1 or 0
  raise('cancelled', times[i])
  keep(kept)
end
return seen
