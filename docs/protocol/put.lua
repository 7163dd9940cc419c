#!lua
-- Redis's clock, the only one that decides: microseconds and whole milliseconds.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
-- CHECK, the first thing a script that knows a placement does.
-- placement: "epoch shards previous state". Answers nil to go on, or the
-- caller's whole reply if this shard has seen a newer placement, or another one
-- of the same epoch, as after a failover that lost one of them.
local function check(gate, ledger, placement)
  local seen = redis.call('HGET', gate, 'placement')
  if seen == placement then return nil end
  if seen and tonumber(string.match(placement, '^%d+')) <= tonumber(string.match(seen, '^%d+')) then
    return {'moved', seen}
  end
  redis.call('HSET', gate, 'placement', placement)
  redis.call('HDEL', gate, 'pass', 'cursor', 'dirty', 'moved')
  redis.call('DEL', ledger)
  return nil
end
-- A due time from the caller: "+1500" is that many ms from now, "1796119200000"
-- is absolute; the past means now.
local function due_of(when)
  local ms = tonumber(when)
  if string.sub(when, 1, 1) == '+' then ms = now + ms end
  if ms < now then return now end
  return ms
end
-- The score of the earliest waiting task, or +inf.
local function earliest(due)
  local head = redis.call('ZRANGEBYSCORE', due, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return head[2] and tonumber(head[2]) or math.huge
end
-- uses: clock check when wake
-- Stores tasks as waiting, replacing whatever is there under their IDs.
-- KEYS  due, task, gate, ledger, wake
-- ARGV  placement, op (6 bytes), not_after (ms), mode ("" or "absent"), then for
--       each task: id, when, split (1 while it is moving house, else 0), body
-- Returns {"ok", due...}, where 0 stands for "exists" (mode absent only);
--       {"moved", placement} or {"late", now} with nothing written.
-- Executed twice: a record of the same op is left as it is and gives the same
--       answer, so only a task delivered in between is put again.
local placement, op, not_after, absent = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == 'absent'

local ids = {}
for i = 5, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local stored = redis.call('HMGET', KEYS[2], unpack(ids))

local answer, same = {'ok'}, 0
for i = 1, #ids do
  local record = stored[i]
  if record and string.sub(record, 14, 19) == op then
    same = same + 1
    answer[i + 1] = struct.unpack('>I6', record, 2)
  end
end
if same == #ids then return answer end
if now > not_after then return {'late', now} end
local moved = check(KEYS[3], KEYS[4], placement)
if moved then return moved end

local scores, records, split, first, fresh = {}, {}, {}, math.huge, {}
for i = 1, #ids do
  local at = 1 + i * 4
  local id = ids[i]
  if answer[i + 1] then
    -- the first execution of this call has stored it
  elseif absent and (stored[i] or fresh[id]) then
    answer[i + 1] = 0
  else
    local due = due_of(ARGV[at + 1])
    answer[i + 1] = due
    fresh[id] = true
    first = math.min(first, due)
    scores[#scores + 1] = due
    scores[#scores + 1] = id
    records[#records + 1] = id
    records[#records + 1] = struct.pack('>BI6I6', 16, due, now) .. op .. ARGV[at + 3]
    if ARGV[at + 2] == '1' then split[#split + 1] = id end
  end
end
if #scores == 0 then return answer end

local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], unpack(records))
redis.call('ZADD', KEYS[1], unpack(scores))
if #split > 0 then redis.call('SADD', KEYS[4], unpack(split)) end
if first < head then redis.call('SPUBLISH', KEYS[5], first) end
return answer
