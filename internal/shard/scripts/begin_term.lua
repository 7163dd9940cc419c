#!lua flags=allow-oom
-- uses: args clock
-- Begins a new term of a topic's intake, and reads the placement. Terms rise, also after
-- a failover that lost one: they are times in µs.
-- KEYS  placement
-- ARGV  term that must be the latest; "" for none
-- Returns {term, placement}; {false} if there is no placement; {"stale", term} if another
-- term is the latest. In these two cases nothing is done.
-- Executed twice: begins one term, and the second reply is "stale".
expect(1, 1)
if ARGV[1] ~= '' then whole('term', ARGV[1], 1, 2 ^ 53) end
local there = redis.call('HMGET', KEYS[1], 'value', 'intake')
if not there[1] then return {false} end
if (there[2] or '') ~= ARGV[1] then return {'stale', there[2] or ''} end
local term = string.format('%d', math.max(now_us, (tonumber(there[2]) or 0) + 1))
redis.call('HSET', KEYS[1], 'intake', term)
return {term, there[1]}
