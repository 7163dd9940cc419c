#!lua flags=allow-oom
-- uses: args rights
-- Removes parked tasks for good.
-- KEYS  due, task
-- ARGV  id...
-- Returns how many were parked and are gone.
-- Executed twice: the second time finds none of them.
expect(2, 0, 1)
may(KEYS[1], 'ZSCORE', 'ZREM')
may(KEYS[2], 'HDEL')
local purged = 0
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', KEYS[1], id) == 'inf' then
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
    purged = purged + 1
  end
end
return purged
