-- The delivery history of one ID, a hash:
--   <due>         ms when the delivery of that due was handled; 0: a handler has it
--   r<due>        of a delivery that its consumer stored: its chain start (the due of
--                 the producer's version), and when that version was scheduled, since
--                 the producer may store another one of the same due
--   newest        the latest chain start seen
--   cancelled     ms of the last cancel, by the clock of the task's shard. A version that
--                 was scheduled before is over.
--   swept         how far the hash is pruned
local history = KEYS[1]

local function keep(ms)
  if redis.call('PTTL', history) < ms then redis.call('PEXPIRE', history, ms) end
end

local function chain_start_of(due, scheduled)
  local start, of = string.match(redis.call('HGET', history, 'r' .. due) or '', '^(%d+) (%d+)$')
  return tonumber(of == scheduled and start or due)
end

-- superseded reports whether a version is superseded: the producer has cancelled it since
-- it was scheduled. Its chain, which has a start, is superseded too if the producer
-- replaced it by one that was delivered.
local function superseded(scheduled, start)
  local p = redis.call('HMGET', history, 'newest', 'cancelled')
  return tonumber(p[2] or 0) > tonumber(scheduled) or start and tonumber(p[1] or 0) > start
end

local function raise(field, ms)
  if tonumber(redis.call('HGET', history, field) or -1) >= ms then return end
  redis.call('HSET', history, field, string.format('%d', ms))
end
