#!lua
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
-- due_of reads a caller's due time: "+1500" is that many ms from now, "1796119200000"
-- is absolute; the past means now. It returns the ms, and the score for ZADD. That is
-- the caller's text if possible, which spares Redis from formatting a Lua number.
local function due_of(when)
  local ms, first = tonumber(when), string.byte(when)
  if not ms or ms % 1 ~= 0 or ms > MOST_MS or ms < -MOST_MS then refuse('when', when) end
  local relative = first == 43 -- "+"
  if relative then ms = now + ms end
  if ms <= now then return now, now end
  if relative then return whole('due', ms), ms end
  -- from 1 to 9 first, a digit last: tonumber accepts blanks, and 0x for hexadecimal.
  -- No ZADD accepts blanks, and Valkey 9.1's refuses 0x.
  return ms, first > 48 and string.byte(when, -1) > 47 and when or ms
end
-- out_now reports whether a version that replaces this one, due now, must be due in the
-- next ms: a message of this one, due in this ms, may be out, or this one replaced such a
-- version itself. It reads records of every format.
local function out_now(id, record)
  local due = #record >= 7 and struct.unpack('>I6', record, 2)
  if due ~= now then return due == now + 1 end
  local score, first = redis.call('ZSCORE', KEYS[1], id), string.byte(record)
  return not score or tonumber(score) < 0 or first ~= 16 and first ~= 32
end
-- earliest returns the score of the earliest waiting task, or +inf. The arguments are
-- texts, which spares Redis from formatting Lua's numbers with 17 digits.
local function earliest(due)
  local head = redis.call('ZRANGEBYSCORE', due, '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and tonumber(head[2]) or math.huge
end
-- uses: args rights clock fence when out wake
-- Stores tasks as waiting, and replaces tasks with the same IDs.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), mode ("" or "absent"), moving (1
--       while the tasks are moving, else 0), then for each task: id, when, body.
--       A body that begins with byte 2 is stored in format 2, others in format 1.
-- Returns {"ok", due...}, where 0 stands for "exists" (mode absent only);
--       {"moved", placement} or {"late", now} with nothing written.
--       A task due now becomes due a ms later if it replaces one that was due, and
--       claimed, in the same ms: consumers tell deliveries apart by their due.
-- Executed twice: a record of the same op stays as it is and gives the same answer,
--       so only a task delivered in between is put again.
expect(5, 5, 3)
local ARGV, placement, op, absent = ARGV, ARGV[1], ARGV[2], ARGV[4] == 'absent'
local not_after, moving = whole('not_after', ARGV[3]), ARGV[5] == '1'
sized('op', op, 6, 6)
either('mode', ARGV[4], '', 'absent')
either('moving', ARGV[5], '0', '1')
-- the checks are inlined: a call for each task costs too much
local ids, dues, scores_of, formats, n = {}, {}, {}, {}, 0
for i = 6, #ARGV, 3 do
  local id = ARGV[i]
  if id == '' or #id > 255 then sized('id', id, 1, 255) end
  local first = string.byte(ARGV[i + 2])
  if not first then sized('body', '', 1) end
  n = n + 1
  formats[n] = first == 2 and 32 or 16
  ids[n] = id
  dues[n], scores_of[n] = due_of(ARGV[i + 1])
end
local stored = redis.call('HMGET', KEYS[2], unpack(ids))

local answer, same = {'ok'}, 0
for i = 1, n do
  local record = stored[i]
  if record and string.sub(record, 14, 19) == op then
    same = same + 1
    answer[i + 1] = struct.unpack('>I6', record, 2)
  end
end
if same == n then return answer end
if now > not_after then return {'late', now} end
local head = earliest(KEYS[1]) -- a read, so before the first write
may(KEYS[1], 'ZADD', 'ZSCORE')
may(KEYS[2], 'HSET')
may(KEYS[4], 'SADD')
may(KEYS[5], 'SPUBLISH')
local moved = fenced(KEYS[3], KEYS[4], placement)
if moved then return moved end

local scores, records, put, first, fresh = {}, {}, {}, math.huge, {}
local scheduled, at = struct.pack('>I6', now) .. op, 0
for i = 1, n do
  local id = ids[i]
  if answer[i + 1] then
    -- the first execution of this call has stored it
  elseif absent and (stored[i] or fresh[id]) then
    answer[i + 1] = 0
  else
    local due = dues[i]
    if due == now and stored[i] and out_now(id, stored[i]) then
      due, scores_of[i] = now + 1, now + 1
    end
    answer[i + 1] = due
    if absent then fresh[id] = true end
    if due < first then first = due end
    scores[at + 1], scores[at + 2] = scores_of[i], id
    records[at + 1], records[at + 2] = id, struct.pack('>BI6', formats[i], due) .. scheduled .. ARGV[5 + 3 * i]
    at = at + 2
    if moving then put[at / 2] = id end
  end
end
if at == 0 then return answer end

redis.call('HSET', KEYS[2], unpack(records))
redis.call('ZADD', KEYS[1], unpack(scores))
if moving then redis.call('SADD', KEYS[4], unpack(put)) end
if first < head then redis.call('SPUBLISH', KEYS[5], first) end
return answer
