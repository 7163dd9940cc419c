#!lua flags=allow-oom
-- Arguments are checked before the first write: a script that stopped halfway would
-- leave a record without a score, or with the score of another state.
local MOST_TASKS, MOST_MS, MOST_REASON = 1000, 2 ^ 48 - 1, 65520

local function refuse(what, got)
  got = string.gsub(string.sub(tostring(got), 1, 40), '[^\32-\126]', '?')
  error({err = 'ARGUMENT ' .. what .. '; got ' .. got})
end

-- expect checks how many keys and arguments there are: `fixed` ones, then `each` for
-- every task.
local function expect(keys, fixed, each)
  if #KEYS ~= keys then refuse(keys .. ' keys', #KEYS) end
  local tasks = (#ARGV - fixed) / (each or 1)
  if tasks < 0 or tasks ~= math.floor(tasks) or tasks > 0 and not each then refuse('number of arguments', #ARGV) end
  if tasks > MOST_TASKS then refuse('at most ' .. MOST_TASKS .. ' tasks', tasks) end
end

-- whole returns a whole number from low to high, by default from 0 to the latest ms
-- that a record holds.
local function whole(what, text, low, high)
  local n = tonumber(text)
  if not n or n ~= math.floor(n) or n < (low or 0) or n > (high or MOST_MS) then refuse(what, text) end
  return n
end

local function either(what, text, one, other)
  if text ~= one and text ~= other then refuse(what .. ': "' .. one .. '" or "' .. other .. '"', text) end
end

local function sized(what, text, low, high)
  if #text < low or high and #text > high then refuse('bytes of ' .. what, #text) end
end

-- leased_under checks that a token is the score of a lease.
local function leased_under(token)
  local n = tonumber(token)
  if not n or not (n < 0 and n > -math.huge) then refuse('token', token) end
end

-- placed checks a placement: "epoch shards previous phase".
local function placed(text)
  local epoch, shards, previous, phase = string.match(text, '^(%d+) (%d+) (%d+) (%l+)$')
  if not epoch or phase ~= 'stable' and phase ~= 'migrating' and phase ~= 'removed' then refuse('placement', text) end
  whole('epoch', epoch, 1)
  whole('shards', shards, 1, 4096)
  whole('previous shards', previous, 1, 4096)
end
-- Rights are checked before the first write, as arguments are: a script stops at the
-- first command that its user may not run, and what it wrote before stays. So a missing
-- right shows at the first call, and not when the shard count changes.

-- allowed passes as many arguments as the command needs at least. Without them, Redis
-- 8.0 raises an error. A table of commands would cost more than the check.
local function allowed(command, key)
  if command == 'ZADD' or command == 'HSET' or command == 'ZRANGEBYSCORE' or command == 'ZREVRANGEBYSCORE'
    or command == 'ZCOUNT' or command == 'ZRANGE' or command == 'ZREMRANGEBYSCORE' or command == 'HINCRBY' then
    return redis.acl_check_cmd(command, key, '', '')
  end
  if command == 'GET' or command == 'PTTL' or command == 'HLEN' or command == 'HGETALL' or command == 'UNLINK'
    or command == 'ZCARD' then
    return redis.acl_check_cmd(command, key)
  end
  return redis.acl_check_cmd(command, key, '')
end

-- may stops a script if its user may not run all of these commands on a key, or
-- publish to a channel.
local function may(key, command, ...)
  if not allowed(command, key) then
    error({err = "NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command on " .. key})
  end
  if ... then may(key, ...) end
end
-- The delivery history of one ID, a hash:
--   <due>         ms when the delivery of that due was handled; 0: a handler has it
--   r<due>        of a delivery that its consumer stored: its chain start (the due of
--                 the producer's version), and when that version was scheduled, since
--                 the producer may store another one of the same due
--   newest        the latest chain start seen
--   cancelled     ms of the last cancel
--   requested     ms when the producer last asked to move the task
--   requested_due the due it asked for; builds before 0.1.0 had `wished` and `wish`
--   swept         how far the hash is pruned
local history = KEYS[1]

local function keep(ms)
  if redis.call('PTTL', history) < ms then redis.call('PEXPIRE', history, ms) end
end

local function chain_start_of(due, scheduled)
  local start, of = string.match(redis.call('HGET', history, 'r' .. due) or '', '^(%d+) (%d+)$')
  return tonumber(of == scheduled and start or due)
end

-- superseded reports whether a chain is superseded: the producer has cancelled it, or
-- replaced it by one that was delivered.
local function superseded(start)
  local p = redis.call('HMGET', history, 'newest', 'cancelled')
  return tonumber(p[1] or 0) > start or tonumber(p[2] or 0) > start
end

local function raise(field, ms)
  if tonumber(redis.call('HGET', history, field) or -1) >= ms then return end
  redis.call('HSET', history, field, string.format('%.0f', ms))
end
-- uses: args rights history
-- Notes for consumers that a producer cancelled a task, or asked to move it, whose
-- message they may have.
-- KEYS  past
-- ARGV  at (ms, by the clock of the task's shard; "": only ask whether there is a
--       history), due (ms, the requested due; "": cancelled), keep (ms)
-- Returns 1 or 0: whether there was a history before.
-- Executed twice: noted once; the second time there is a history.
expect(1, 3)
if ARGV[1] ~= '' then whole('at', ARGV[1]) end
if ARGV[2] ~= '' then whole('due', ARGV[2], -MOST_MS) end
local kept = whole('keep', ARGV[3], 1)
local there = redis.call('EXISTS', history)
if ARGV[1] == '' then return there end
may(history, 'PTTL', 'PEXPIRE')
if ARGV[2] == '' then
  raise('cancelled', tonumber(ARGV[1]))
else
  redis.call('HSET', history, 'requested', ARGV[1], 'requested_due', ARGV[2])
end
keep(kept)
return there
