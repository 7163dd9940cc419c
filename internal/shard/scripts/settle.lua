#!lua flags=allow-oom
-- uses: args rights
-- Removes delivered or moved tasks, each only if it is still leased under the
-- token of its claim.
-- KEYS  due, task
-- ARGV  token, id, token, id, ...
-- Returns how many were removed.
-- Executed twice: the second time removes nothing.
expect(2, 0, 2)
for i = 1, #ARGV, 2 do leased_under(ARGV[i]) end
local ids = {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local scores = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local held = {}
for i, id in ipairs(ids) do
  if scores[i] and tonumber(scores[i]) == tonumber(ARGV[i * 2 - 1]) then held[#held + 1] = id end
end
if #held == 0 then return 0 end
may(KEYS[2], 'HDEL')
redis.call('ZREM', KEYS[1], unpack(held))
redis.call('HDEL', KEYS[2], unpack(held))
return #held
