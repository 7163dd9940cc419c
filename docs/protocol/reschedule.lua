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
-- The record (see record.go): format and flags, due, scheduled, op; then the attempts, if
-- ATTEMPTED; then the score from before an export, if EXPORTED; then the reason of the
-- last release and its time in ms, as in "why @1796119300456", if NOTED; then the body. A
-- body that begins with byte 2 makes a record of format 2. Scripts read no more of it.
local FORMAT, REDELIVERED, EXPORTED, NOTED, ATTEMPTED = 16, 1, 2, 4, 8
local STAMP = ' @' .. string.rep('%d', 13)

-- known reports whether a record is of format 1 or 2.
local function known(record)
  local first = string.byte(record)
  return first and first >= FORMAT and first < 3 * FORMAT
end

local function parse(record)
  local r = {attempts = 0}
  local flags, at
  flags, r.due, r.scheduled, r.op, at = struct.unpack('>BI6I6c6', record)
  r.format, r.redelivered = flags - flags % FORMAT, flags % 2 == 1
  if flags % 16 >= ATTEMPTED then
    r.attempts, at = struct.unpack('>I2', record, at)
  end
  if flags % 4 >= EXPORTED then
    r.prior, at = struct.unpack('>d', record, at)
  end
  if flags % 8 >= NOTED then
    r.note, at = struct.unpack('>I2c0', record, at)
    local stamp = string.sub(r.note, -15) -- a reason may have no time
    if string.find(stamp, STAMP) then
      r.note, r.noted = string.sub(r.note, 1, -16), tonumber(string.sub(stamp, 3))
    end
  end
  r.body = string.sub(record, at)
  return r
end

-- open returns nil for a record that is damaged or of a newer format. An error would
-- stop the script, and with it all other tasks of the shard.
local function open(record)
  if not known(record) then return nil end
  local readable, r = pcall(parse, record)
  return readable and r or nil
end

local function seal(r)
  local flags, attempts, prior, note = r.format or string.byte(r.body) == 2 and 2 * FORMAT or FORMAT, '', '', ''
  if r.redelivered then flags = flags + REDELIVERED end
  if r.attempts > 0 then
    flags = flags + ATTEMPTED
    attempts = struct.pack('>I2', r.attempts)
  end
  if r.prior then
    flags = flags + EXPORTED
    prior = struct.pack('>d', r.prior)
  end
  if r.note then
    flags = flags + NOTED
    note = r.noted and r.note .. string.format(' @%013.0f', r.noted) or r.note
    note = struct.pack('>I2c0', #note, note)
  end
  return struct.pack('>BI6I6', flags, r.due, r.scheduled) .. r.op .. attempts .. prior .. note .. r.body
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
-- uses: args rights clock fence record when out wake
-- Gives a task a new due time and a fresh start: waiting, no attempts.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), id, when, moving (1 or 0),
--       fallback (the record as read at the old shard, or "")
-- Returns {"ok", due}; {"none", now}; {"moved", placement}; {"late", now};
--       the error UNREADABLE with the task unchanged.
--       A task claimed in this ms and to be due now becomes due a ms later, as in put.
-- Executed twice: a record of the same op gives the same answer again.
expect(5, 7)
local op, not_after, id, fallback = ARGV[2], whole('not_after', ARGV[3]), ARGV[4], ARGV[7]
sized('op', op, 6, 6)
either('moving', ARGV[6], '0', '1')
local due = due_of(ARGV[5])
local record = redis.call('HGET', KEYS[2], id)
if record and string.sub(record, 14, 19) == op then
  return {'ok', struct.unpack('>I6', record, 2)}
end
if now > not_after then return {'late', now} end
may(KEYS[1], 'ZRANGEBYSCORE', 'ZADD', 'ZSCORE')
may(KEYS[2], 'HSET')
may(KEYS[4], 'SISMEMBER', 'SADD')
may(KEYS[5], 'SPUBLISH')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end

if not record then
  if fallback == '' or redis.call('SISMEMBER', KEYS[4], id) == 1 then return {'none', now} end
  record = fallback
end
local r = open(record)
if not r then return redis.error_reply('UNREADABLE record: it is damaged, or of a newer format') end
r.due = due == now and out_now(id, record) and now + 1 or due
r.attempts, r.redelivered, r.prior, r.note, r.op = 0, false, nil, nil, op
local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], id, seal(r))
redis.call('ZADD', KEYS[1], r.due, id)
if ARGV[6] == '1' then redis.call('SADD', KEYS[4], id) end
if r.due < head then redis.call('SPUBLISH', KEYS[5], r.due) end
return {'ok', r.due}
