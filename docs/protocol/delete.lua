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
-- Redis's clock, the only one that decides, in µs and in whole ms.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
-- fenced comes first in a script that knows a placement ("epoch shards previous phase").
-- It returns nil to go on. If this shard has seen a newer placement, it returns the
-- caller's whole reply; also for another one of the same epoch, as after a failover that
-- lost one of them.
local function fenced(fence, handled, placement)
  may(fence, 'HSET', 'HDEL')
  may(handled, 'UNLINK')
  local seen = redis.call('HGET', fence, 'placement')
  if seen == placement then return nil end
  placed(placement)
  if seen and tonumber(string.match(placement, '^%d+')) <= tonumber(string.match(seen, '^%d+')) then
    return {'moved', seen}
  end
  redis.call('UNLINK', handled) -- it may be large
  redis.call('HDEL', fence, 'pass', 'cursor', 'dirty', 'moved')
  redis.call('HSET', fence, 'placement', placement) -- last: it says that the rest is done
  return nil
end
-- uses: args rights clock fence
-- Removes tasks in any state.
-- KEYS  due, task, fence, handled
-- ARGV  placement, not_after (ms), handled (1: note the IDs there, else 0), id...
-- Returns {"ok", for each id 0: it was not there, 1: it was, 2: it was, and a message
--       of it may be out: it was leased, or tried before; then now (ms)};
--       {"moved", placement}; {"late", now} with nothing written.
-- Executed twice: the second time finds nothing. So a caller that retries after a
--       lost reply may get 0 for a task that it removed.
expect(4, 3, 1)
either('handled', ARGV[3], '0', '1')
if now > whole('not_after', ARGV[2]) then return {'late', now} end
may(KEYS[1], 'ZSCORE', 'ZREM')
may(KEYS[2], 'HGET', 'HDEL')
may(KEYS[4], 'SADD')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
local answer = {'ok'}
for i = 4, #ARGV do
  local id, there = ARGV[i], 0
  local score = redis.call('ZSCORE', KEYS[1], id)
  if score then
    local record = redis.call('HGET', KEYS[2], id) or ''
    -- format 1 or 2 without a flag: it was never tried
    local first = string.byte(record)
    local fresh = tonumber(score) >= 0 and (first == 16 or first == 32)
    there = fresh and 1 or 2
    redis.call('ZREM', KEYS[1], id)
  end
  redis.call('HDEL', KEYS[2], id)
  if ARGV[3] == '1' then redis.call('SADD', KEYS[4], id) end
  answer[#answer + 1] = there
end
answer[#answer + 1] = now
return answer
