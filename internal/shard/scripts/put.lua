#!lua
-- uses: args rights clock events fence term when out group
-- Stores tasks as waiting, and replaces tasks with the same IDs.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), mode ("", "absent", "present", or
--       "old": the old shard has the tasks, and they are present), moving (1
--       while the tasks are moving, else 0), term (of the intake; "": none), cancelled
--       (ms of the last cancel at the old shards; 0: none), then for each task: id,
--       when, body. A body that begins with byte 2, 3 or 4 is stored in that
--       format, others in format 1.
-- Returns {"ok", due..., then for each replaced task that was in a group: its number, from
--       1, and its mark and group}. A due of 0 stands for "exists" (mode absent) or "none"
--       (modes present and old);
--       {"moved", placement}, {"superseded", term}, {"unraised", term} or
--       {"late", now} with nothing written, also if a task's mark is too old.
--       A task due now becomes due a ms later if it replaces one that was due, and
--       claimed, in the same ms: consumers tell deliveries apart by their due.
-- Executed twice: a record of the same op stays as it is and gives the same answer,
--       so only a task delivered in between is put again.
expect(5, 7, 3)
local ARGV, placement, op, mode = ARGV, ARGV[1], ARGV[2], ARGV[4]
local absent, present = mode == 'absent', mode == 'present' or mode == 'old'
local not_after, moving, cancelled = whole('not_after', ARGV[3]), ARGV[5] == '1', whole('cancelled', ARGV[7])
sized('op', op, 6, 6)
if not present then either('mode', mode, '', 'absent') end
either('moving', ARGV[5], '0', '1')
-- The checks are inlined: a call for each task costs too much. The tables have room for one
-- task, because a table that grows from nothing costs 500 instructions.
local ids, dues, scores_of, formats, n = {nil}, {nil}, {nil}, {nil}, 0
local soonest, soonest_score = math.huge, nil
for i = 8, #ARGV, 3 do
  local id = ARGV[i]
  if id == '' or #id > 255 then sized('id', id, 1, 255) end
  local first = string.byte(ARGV[i + 2])
  if not first then sized('body', '', 1) end
  n = n + 1
  formats[n] = first > 1 and first < 5 and first * 16 or 16
  if first == 4 then not_after = math.min(not_after, last_put(ARGV[i + 2])) end
  ids[n] = id
  dues[n], scores_of[n] = due_of(ARGV[i + 1])
  if dues[n] < soonest then soonest, soonest_score = dues[n], scores_of[n] end
end
local stored = redis.call('HMGET', KEYS[2], unpack(ids))

local answer, same = {'ok', nil}, 0
for i = 1, n do
  local record = stored[i]
  if record and string.sub(record, 14, 19) == op then
    same = same + 1
    answer[i + 1] = struct.unpack('>I6', record, 2)
  end
end
if same == n then return answer end
if now > not_after then return {'late', now} end
-- The scanners know of what is due before these; a read, so before the first write.
local sooner = redis.call('ZRANGEBYSCORE', KEYS[1], '0', soonest_score, 'LIMIT', '0', '1')[1]
may('ZADD', KEYS[1], '', '')
may('ZSCORE', KEYS[1], '')
may('HSET', KEYS[2], '', '')
may('SADD', KEYS[4], '')
if mode == 'old' then may('SISMEMBER', KEYS[4], '') end
may('SPUBLISH', KEYS[5], '')
local other = other_term(KEYS[3], ARGV[6])
if other then return other end
local moved = fenced(KEYS[3], KEYS[4], placement)
if moved then return moved end

local scores, records, fresh, left = {nil, nil}, {nil, nil}, {}, {}
local named, written, due_at = moving or history_kept, {}, {}
local scheduled, at = struct.pack('>I6', math.max(now, last_cancel, cancelled)) .. op, 0
for i = 1, n do
  local id = ids[i]
  if answer[i + 1] then
    -- the first execution of this call has stored it
  elseif absent and (stored[i] or fresh[id]) then
    answer[i + 1] = 0
  elseif present and not stored[i] and (mode == 'present' or redis.call('SISMEMBER', KEYS[4], id) == 1) then
    answer[i + 1] = 0 -- a task that was here, and isn't any more, is gone from the old shard too
  else
    local due = dues[i]
    if due == now and stored[i] and out_now(id, stored[i]) then
      due, scores_of[i] = now + 1, now + 1
    end
    answer[i + 1] = due
    local member = stored[i] and member_of(stored[i])
    if member then left[#left + 1], left[#left + 2] = i, member end
    if absent then fresh[id] = true end
    scores[at + 1], scores[at + 2] = scores_of[i], id
    records[at + 1], records[at + 2] = id, struct.pack('>BI6', formats[i], due) .. scheduled .. ARGV[7 + 3 * i]
    at = at + 2
    if named then written[at / 2], due_at[at / 2] = id, due end
  end
end
if at == 0 then return answer end

redis.call('HSET', KEYS[2], unpack(records))
redis.call('ZADD', KEYS[1], unpack(scores))
if moving then redis.call('SADD', KEYS[4], unpack(written)) end
if history_kept then add_events(KEYS[3], history_kept, 's', written, due_at) end
if not sooner then redis.call('SPUBLISH', KEYS[5], string.format('%d', soonest)) end
for i = 1, #left do answer[n + 1 + i] = left[i] end
return answer
