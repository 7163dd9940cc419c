#!lua flags=allow-oom
-- uses: args rights history
-- Notes for consumers that a producer cancelled a task: they may have an older version
-- of it, in a handler or in their queue.
-- KEYS  history
-- ARGV  at (ms, by the clock of the task's shard), keep (ms)
-- Returns 1.
-- Executed twice: noted once.
expect(1, 2)
local at, kept = whole('at', ARGV[1]), whole('keep', ARGV[2], 1)
may(history, 'PTTL', 'PEXPIRE')
raise('cancelled', at)
keep(kept)
return 1
