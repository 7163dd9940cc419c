#!lua flags=allow-oom
-- uses: args rights fence
-- Shows this shard a placement, and reads tasks under it.
-- KEYS  task, fence, handled
-- ARGV  placement, id...
-- Returns {"ok", ms of the shard's last cancel (0: none), then for each id its record or
--       false}; {"moved", placement}.
-- Executed twice: the same.
expect(3, 1, 1)
may('HGET', KEYS[1], '')
local moved = fenced(KEYS[2], KEYS[3], ARGV[1])
if moved then return moved end
redis.call('HSET', KEYS[2], 'shown', ARGV[1]) -- a write, so that WAIT covers it
local answer = {'ok', last_cancel}
for i = 2, #ARGV do answer[i + 1] = redis.call('HGET', KEYS[1], ARGV[i]) end
return answer
