-- first_lease_end returns when the earliest lease runs out, in ms with a fraction; +inf: none.
-- attention returns when a shard needs attention next, in ms: its earliest waiting task
-- is due, or its earliest lease runs out; -1: never. lease_end is that of first_lease_end, nil
-- if it isn't known. It uses lib_wake.
local function first_lease_end(due)
  local last = redis.call('ZREVRANGEBYSCORE', due, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
  return last[2] and -last[2] or math.huge
end

local function attention(due, lease_end)
  if not lease_end then
    local first = tonumber(redis.call('ZRANGEBYSCORE', due, '-inf', '(+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2])
    if not first then return -1 end
    if first >= 0 then return first end -- the shard has no lease
    lease_end = first_lease_end(due)
  end
  local next = math.min(earliest(due), math.ceil(lease_end))
  return next < math.huge and next or -1
end
