#!lua flags=allow-oom
-- uses: args rights clock history prune
-- Notes that a delivery was handled, and prunes a long delivery history: deliveries
-- handled before the window, and deliveries due before it and never handled. The latter
-- stay for at least a day, since consumers let messages wait.
-- KEYS  history
-- ARGV  due (ms, of the delivery), window (ms)
-- Returns how many fields the history has.
-- Executed twice: the same, and a long history is pruned further.
expect(1, 2)
whole('due', ARGV[1])
local window = whole('window', ARGV[2], 1)
may('PTTL', history)
may('PEXPIRE', history, '')
may('HLEN', history)
may('HGET', history, '')
may('HGETALL', history)
may('HDEL', history, '')
redis.call('HSET', history, ARGV[1], now)
keep(window)
return prune(window, math.max(window, 86400000))
