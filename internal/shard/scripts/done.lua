#!lua flags=allow-oom
-- uses: args rights clock past
-- Notes that a delivery was done with. What is older than the window goes, where
-- an ID has a long past.
-- KEYS  past
-- ARGV  due (ms, of the delivery), window (ms)
-- Returns how many fields the past has.
-- Executed twice: the same.
expect(1, 2)
whole('due', ARGV[1])
local window = whole('window', ARGV[2], 1)
may(past, 'PTTL', 'PEXPIRE', 'HLEN', 'HGETALL', 'HDEL')
redis.call('HSET', past, ARGV[1], now)
keep(window)
local fields = redis.call('HLEN', past)
if fields > 64 and fields % 32 == 0 then
  local all = redis.call('HGETALL', past)
  for i = 1, #all, 2 do
    local done = tonumber(all[i + 1])
    if tonumber(all[i]) and done > 0 and done < now - window then
      redis.call('HDEL', past, all[i], 'r' .. all[i])
    end
  end
end
return fields
