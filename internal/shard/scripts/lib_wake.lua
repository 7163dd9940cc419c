-- The score of the earliest waiting task, or +inf. Texts, since Redis prints a number
-- of Lua's with 17 digits first.
local function earliest(due)
  local head = redis.call('ZRANGEBYSCORE', due, '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and tonumber(head[2]) or math.huge
end
