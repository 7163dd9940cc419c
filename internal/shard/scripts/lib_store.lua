-- store writes a task with a score, +inf if it is parked. moving is '1' while the task is
-- moving. It uses lib_record.
local function store(id, r, score, moving)
  redis.call('HSET', KEYS[2], id, seal(r))
  redis.call('ZADD', KEYS[1], score == math.huge and '+inf' or score, id)
  if moving == '1' then redis.call('SADD', KEYS[4], id) end
end
