#!lua flags=allow-oom
-- uses: args rights clock
-- Notes that a scanner lives, and forgets scanners that were silent for long. Heartbeats
-- in the future came before Redis's clock was set back, and count from now on.
-- KEYS  fleet
-- ARGV  instance, alive (ms: a scanner silent for longer counts as dead),
--       forget (ms)
-- Returns {how many scanners live, now (ms), instances forgotten now...}.
-- Executed twice: the same.
expect(1, 3)
sized('instance', ARGV[1], 1)
local alive, gone = now - whole('alive', ARGV[2]), now - whole('forget', ARGV[3])
may('ZRANGEBYSCORE', KEYS[1], '', '')
may('ZREMRANGEBYSCORE', KEYS[1], '', '')
may('ZCOUNT', KEYS[1], '', '')
for _, instance in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%d', now), '+inf')) do
  redis.call('ZADD', KEYS[1], now, instance)
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
local answer = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', gone)
if answer[1] then redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', gone) end
table.insert(answer, 1, redis.call('ZCOUNT', KEYS[1], alive, '+inf'))
table.insert(answer, 2, now)
return answer
