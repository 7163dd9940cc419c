#!lua flags=allow-oom
-- uses: args rights clock
-- Begins or ends an entry in the record of operators' changes. The record is a hash of the
-- newest 1,000 entries: ID -> "began ended note", with times in ms; ended is 0 until then.
-- It works in a full Redis too.
-- KEYS  audit
-- ARGV  id (12 bytes), ends (1 or 0), note (at most 8 KiB, opaque)
-- Returns the time that it noted in ms; 0 if the entry to end isn't there any more.
-- Executed twice: an entry that has begun stays as it is; one that ends, ends again.
expect(1, 3)
local id = ARGV[1]
sized('id', id, 12, 12)
either('ends', ARGV[2], '0', '1')
sized('note', ARGV[3], 1, 8192)
may('HGETALL', KEYS[1])
may('HSET', KEYS[1], '', '')
may('HDEL', KEYS[1], '')
local there = redis.call('HGET', KEYS[1], id)
local began = there and string.match(there, '^%d+')
local text = string.format('%d', now)
if ARGV[2] == '1' then
  if not began then return 0 end
  redis.call('HSET', KEYS[1], id, began .. ' ' .. text .. ' ' .. ARGV[3])
  return now
end
if began then return tonumber(began) end
local all, oldest, least = redis.call('HGETALL', KEYS[1]), nil, math.huge
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+') or 0)
  if at < least then oldest, least = all[i], at end
end
if #all >= 2000 then redis.call('HDEL', KEYS[1], oldest) end
redis.call('HSET', KEYS[1], id, text .. ' 0 ' .. ARGV[3])
return now
