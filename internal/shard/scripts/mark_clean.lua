#!lua flags=allow-oom
-- uses: args
-- Notes that a shard holds no misplaced task any more. The note begins with the
-- placement it was found under, and counts for no other. A placement may be lost, and
-- be put back by a caller that doesn't know this note.
-- KEYS  placement
-- ARGV  placement as the caller knows it, shard, scanned (how many shards are
--       polled while migrating)
-- Returns how many shards are not clean yet; -1 if the placement is another one.
-- Executed twice: the same.
expect(1, 3)
local scanned = whole('scanned', ARGV[3], 1, 4096)
local shard = whole('shard', ARGV[2], 0, scanned - 1)
local value = redis.call('HGET', KEYS[1], 'value')
if value ~= ARGV[1] then return -1 end
local of, clean = string.match(redis.call('HGET', KEYS[1], 'clean') or '', '^(.*):([01]*)$')
if of ~= value then clean = string.rep('0', scanned) end
clean = string.sub(clean, 1, shard) .. '1' .. string.sub(clean, shard + 2)
redis.call('HSET', KEYS[1], 'clean', value .. ':' .. clean)
local _, left = string.gsub(clean, '0', '')
return left
