-- earliest returns the score of the earliest waiting task, or +inf. The arguments are
-- texts, which spares Redis from formatting Lua's numbers with 17 digits.
local function earliest(due)
  local head = redis.call('ZRANGEBYSCORE', due, '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and tonumber(head[2]) or math.huge
end
