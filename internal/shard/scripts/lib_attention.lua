-- attention returns when a shard needs attention next, in ms: its earliest waiting task
-- is due, or its earliest lease runs out; -1: never.
local function attention(due)
  local waiting = redis.call('ZRANGEBYSCORE', due, 0, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local lease_end = redis.call('ZREVRANGEBYSCORE', due, '(0', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local next = waiting and tonumber(waiting) or -1
  if lease_end and (next == -1 or -lease_end < next) then next = math.ceil(-lease_end) end
  return next
end
