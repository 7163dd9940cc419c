#!lua flags=allow-oom
-- uses: args
-- Shows this shard a term of the intake: from now on it refuses earlier ones.
-- KEYS  fence
-- ARGV  term
-- Returns {"ok"}; {"superseded", term} if the shard has seen a later one.
-- Executed twice: the same.
expect(1, 1)
local term = whole('term', ARGV[1], 1, 2 ^ 53)
local seen = redis.call('HGET', KEYS[1], 'intake')
if seen and tonumber(seen) > term then return {'superseded', seen} end
redis.call('HSET', KEYS[1], 'intake', ARGV[1])
return {'ok'}
