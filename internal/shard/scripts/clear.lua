#!lua flags=allow-oom
-- uses: args rights fence
-- Removes everything that a shard of a removed topic holds.
-- KEYS  due, task, fence, handled, group (of the index, in the shard's slot)
-- ARGV  placement (of a removed topic), purge (1: tasks are removed too; 0: nothing
--       is done if there are any)
-- Returns {"ok", tasks removed}; {"none", tasks}: they stay; {"moved", placement}:
--       the topic was created again.
-- Executed twice: the second time finds no task. If the topic was created again in
--       between, the shard has seen its placement and refuses a late copy.
local placement, purge = ARGV[1], ARGV[2]
expect(5, 2)
either('purge', purge, '0', '1')
if not string.find(placement, ' removed$') then refuse('placement of a removed topic', placement) end
may('ZCARD', KEYS[1])
may('UNLINK', KEYS[1])
may('UNLINK', KEYS[2])
may('UNLINK', KEYS[4])
may('UNLINK', KEYS[5])
local moved = fenced(KEYS[3], KEYS[4], placement)
if moved then return moved end
local tasks = redis.call('ZCARD', KEYS[1])
if tasks > 0 and purge == '0' then return {'none', tasks} end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[4], KEYS[5])
return {'ok', tasks}
