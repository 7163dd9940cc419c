#!lua flags=allow-oom
-- uses: args
-- Shows this shard a term of the intake: from now on it refuses earlier ones.
-- KEYS  fence
-- ARGV  term, the latest one when it began; "" for none
-- Returns {"ok"}; {"superseded", term} if the shard has seen a later one; {"stale", term} if it has
-- seen one between the two. In these two cases nothing is done.
-- Executed twice: the same.
expect(1, 2)
local term, latest = whole('term', ARGV[1], 1, 2 ^ 53), 0
if ARGV[2] ~= '' then latest = whole('latest term', ARGV[2], 1, 2 ^ 53) end
local text = redis.call('HGET', KEYS[1], 'intake')
local seen = tonumber(text or 0)
if seen > term then return {'superseded', text} end
if seen > latest and seen < term then return {'stale', text} end
redis.call('HSET', KEYS[1], 'intake', ARGV[1])
return {'ok'}
