-- store writes a task with a score, +inf if it is parked, and announces the earliest one.
-- moving is '1' while the task is moving. It uses lib_record and lib_wake.
local function store(id, r, score, moving)
  local head = earliest(KEYS[1])
  redis.call('HSET', KEYS[2], id, seal(r))
  redis.call('ZADD', KEYS[1], score == math.huge and '+inf' or score, id)
  if moving == '1' then redis.call('SADD', KEYS[4], id) end
  if score < head then redis.call('SPUBLISH', KEYS[5], score) end
end
