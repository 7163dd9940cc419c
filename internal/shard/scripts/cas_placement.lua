#!lua flags=allow-oom
-- uses: args rights clock
-- Changes a topic's placement by compare-and-set on the whole old value, and announces
-- the new one to the fleet.
-- KEYS  placement, changes (the channel)
-- ARGV  expected ("": there is none yet), wanted, nonce (of this call, the same
--       in each execution)
-- Returns {1 or 0: whether this call put wanted in place, the placement now}.
-- Executed twice: the second execution recognizes its own change by the nonce.
expect(2, 3)
if ARGV[1] ~= '' then placed(ARGV[1]) end
placed(ARGV[2])
sized('nonce', ARGV[3], 1)
local there = redis.call('HMGET', KEYS[1], 'value', 'nonce')
local value, nonce = there[1] or '', there[2]
if value == ARGV[1] then
  may('SPUBLISH', KEYS[2], '')
  redis.call('HSET', KEYS[1], 'value', ARGV[2], 'nonce', ARGV[3], 'since', now)
  redis.call('SPUBLISH', KEYS[2], ARGV[2])
  return {1, ARGV[2]}
end
if value == ARGV[2] and nonce == ARGV[3] then return {1, value} end
return {0, value}
