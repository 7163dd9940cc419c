#!lua flags=allow-oom
-- uses: args rights clock events
-- Removes parked tasks for good.
-- KEYS  due, task, fence
-- ARGV  id...
-- Returns how many were parked and are gone.
-- Executed twice: the second time finds none of them.
expect(3, 0, 1)
may('ZSCORE', KEYS[1], '')
may('ZREM', KEYS[1], '')
may('HDEL', KEYS[2], '')
local purged = {}
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', KEYS[1], id) == 'inf' then
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
    purged[#purged + 1] = id
  end
end
add_events(KEYS[3], history_of(KEYS[3]), 'x', purged)
return #purged
