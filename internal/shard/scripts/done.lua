#!lua flags=allow-oom
-- uses: args rights clock past prune
-- Notes that a delivery was done with, and prunes a long history: what was done
-- before the window goes, and what was due before it and never done; the latter
-- after a day at the earliest, as consumers let a message wait.
-- KEYS  past
-- ARGV  due (ms, of the delivery), window (ms)
-- Returns how many fields the past has.
-- Executed twice: the same, and a long history is pruned further.
expect(1, 2)
whole('due', ARGV[1])
local window = whole('window', ARGV[2], 1)
may(past, 'PTTL', 'PEXPIRE', 'HLEN', 'HGET', 'HGETALL', 'HDEL')
redis.call('HSET', past, ARGV[1], now)
keep(window)
return prune(window, math.max(window, 86400000))
