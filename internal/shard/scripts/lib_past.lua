-- The delivery history of one ID, a hash:
--   <due>         ms when the delivery of that due was handled; 0: a handler has it
--   r<due>        of a delivery that its consumer stored: its chain start (the due of
--                 the producer's version), and when that version was scheduled, since
--                 the producer may store another one of the same due
--   newest        the latest chain start seen
--   cancelled     ms of the last cancel
--   wished, wish  ms when the producer asked to move the task, and the requested due
--   swept         how far the hash is pruned
local past = KEYS[1]

local function keep(ms)
  if redis.call('PTTL', past) < ms then redis.call('PEXPIRE', past, ms) end
end

local function root_of(due, scheduled)
  local root, of = string.match(redis.call('HGET', past, 'r' .. due) or '', '^(%d+) (%d+)$')
  return tonumber(of == scheduled and root or due)
end

-- over reports whether a chain is superseded: the producer has cancelled it, or
-- replaced it by one that was delivered.
local function over(root)
  local p = redis.call('HMGET', past, 'newest', 'cancelled')
  return tonumber(p[1] or 0) > root or tonumber(p[2] or 0) > root
end

local function raise(field, ms)
  if tonumber(redis.call('HGET', past, field) or -1) < ms then redis.call('HSET', past, field, string.format('%.0f', ms)) end
end
