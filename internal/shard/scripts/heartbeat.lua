#!lua flags=allow-oom
-- uses: clock
-- Tells the fleet that a scanner lives, forgets those long silent.
-- KEYS  fleet
-- ARGV  instance, alive (ms: a scanner silent for longer is taken for dead),
--       forget (ms)
-- Returns how many scanners live.
-- Executed twice: the same.
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]))
return redis.call('ZCOUNT', KEYS[1], now - tonumber(ARGV[2]), '+inf')
