#!lua flags=allow-oom
-- Notes that a shard holds nothing misplaced any more.
-- KEYS  placement
-- ARGV  placement as the caller knows it, shard, scanned (how many shards are
--       attended while migrating)
-- Returns how many shards are not clean yet; -1 if the placement is another one.
-- Executed twice: the same.
local value = redis.call('HGET', KEYS[1], 'value')
if value ~= ARGV[1] then return -1 end
local scanned, shard = tonumber(ARGV[3]), tonumber(ARGV[2])
local clean = redis.call('HGET', KEYS[1], 'clean') or string.rep('0', scanned)
clean = string.sub(clean, 1, shard) .. '1' .. string.sub(clean, shard + 2)
redis.call('HSET', KEYS[1], 'clean', clean)
local _, left = string.gsub(clean, '0', '')
return left
