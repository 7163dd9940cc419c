#!lua
-- uses: args rights clock fence when wake
-- Stores tasks as waiting, replacing whatever is there under their IDs.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), mode ("" or "absent"), then for
--       each task: id, when, moving (1 while the task is moving, else 0), body
-- Returns {"ok", due...}, where 0 stands for "exists" (mode absent only);
--       {"moved", placement} or {"late", now} with nothing written.
-- Executed twice: a record of the same op is left as it is and gives the same
--       answer, so only a task delivered in between is put again.
expect(5, 4, 4)
local placement, op, not_after, absent = ARGV[1], ARGV[2], whole('not_after', ARGV[3]), ARGV[4] == 'absent'
sized('op', op, 6, 6)
either('mode', ARGV[4], '', 'absent')
local ids, dues = {}, {}
for i = 5, #ARGV, 4 do
  sized('id', ARGV[i], 1, 255)
  either('moving', ARGV[i + 2], '0', '1')
  sized('body', ARGV[i + 3], 1)
  ids[#ids + 1] = ARGV[i]
  dues[#ids] = due_of(ARGV[i + 1])
end
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
may(KEYS[1], 'ZRANGEBYSCORE', 'ZADD')
may(KEYS[2], 'HSET')
may(KEYS[4], 'SADD')
may(KEYS[5], 'SPUBLISH')
local moved = fenced(KEYS[3], KEYS[4], placement)
if moved then return moved end

local scores, records, moving, first, fresh = {}, {}, {}, math.huge, {}
for i = 1, #ids do
  local at = 1 + i * 4
  local id = ids[i]
  if answer[i + 1] then
    -- the first execution of this call has stored it
  elseif absent and (stored[i] or fresh[id]) then
    answer[i + 1] = 0
  else
    local due = dues[i]
    answer[i + 1] = due
    fresh[id] = true
    first = math.min(first, due)
    scores[#scores + 1] = due
    scores[#scores + 1] = id
    records[#records + 1] = id
    records[#records + 1] = struct.pack('>BI6I6', 16, due, now) .. op .. ARGV[at + 3]
    if ARGV[at + 2] == '1' then moving[#moving + 1] = id end
  end
end
if #scores == 0 then return answer end

local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], unpack(records))
redis.call('ZADD', KEYS[1], unpack(scores))
if #moving > 0 then redis.call('SADD', KEYS[4], unpack(moving)) end
if first < head then redis.call('SPUBLISH', KEYS[5], first) end
return answer
