#!lua flags=allow-oom
-- uses: clock
-- Tells the fleet that a scanner lives, forgets those long silent.
-- KEYS  fleet
-- ARGV  instance, alive (ms: a scanner silent for longer is taken for dead),
--       forget (ms)
-- Returns {how many scanners live, instances forgotten now...}.
-- Executed twice: the same.
redis.call('ZADD', KEYS[1], now, ARGV[1])
local gone = now - tonumber(ARGV[3])
local answer = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', gone)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', gone)
table.insert(answer, 1, redis.call('ZCOUNT', KEYS[1], now - tonumber(ARGV[2]), '+inf'))
return answer
