#!lua flags=allow-oom
-- uses: args clock
-- Begins a new term of a topic's intake, and reads the placement. Terms rise, also after
-- a failover that lost one: they are times in µs.
-- KEYS  placement
-- Returns {term, placement}; {false} if there is no placement, and then nothing is done.
-- Executed twice: begins two terms, and nobody has the first.
expect(1, 0)
local there = redis.call('HMGET', KEYS[1], 'value', 'intake')
if not there[1] then return {false} end
local term = string.format('%d', math.max(now_us, (tonumber(there[2]) or 0) + 1))
redis.call('HSET', KEYS[1], 'intake', term)
return {term, there[1]}
