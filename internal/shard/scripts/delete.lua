#!lua flags=allow-oom
-- uses: args rights clock events fence term group
-- Removes tasks in any state, or those of a group alone.
-- KEYS  due, task, fence, handled
-- ARGV  placement, not_after (ms), handled (1: note the IDs there, else 0), term (of the
--       intake; "": none), event (1: it is a cancel; 0: a copy goes that is stored elsewhere), group
--       ("": any), id...
-- Returns {"ok", for each id 1: it was there, or 0, or 2: it stays, for it isn't in the group;
--       then at (ms): now, or the time of an earlier cancel if the clock was set back since;
--       then for each removed task that was in a group: its number, from 1, and its mark and
--       group};
--       {"moved", placement}, {"superseded", term}, {"unraised", term} or
--       {"late", now} with nothing written.
-- Executed twice: the second time finds nothing. So a caller that retries after a
--       lost reply may get 0 for a task that it removed.
expect(4, 6, 1)
either('handled', ARGV[3], '0', '1')
either('event', ARGV[5], '0', '1')
sized('group', ARGV[6], 0, 255)
local group = ARGV[6] ~= '' and ARGV[6]
if now > whole('not_after', ARGV[2]) then return {'late', now} end
may('ZREM', KEYS[1], '')
may('HGET', KEYS[2], '')
may('HDEL', KEYS[2], '')
may('SADD', KEYS[4], '')
local other = other_term(KEYS[3], ARGV[4])
if other then return other end
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
local at, answer, removed, left = math.max(now, last_cancel), {'ok'}, {}, {}
if at > last_cancel then redis.call('HSET', KEYS[3], 'cancelled', at) end
for i = 7, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', KEYS[2], id)
  local member = record and member_of(record)
  if group and record and (not member or string.sub(member, 9) ~= group) then
    answer[#answer + 1] = 2
  else
    local there = redis.call('ZREM', KEYS[1], id)
    answer[#answer + 1] = there
    if there == 1 then removed[#removed + 1] = id end
    if member then left[#left + 1], left[#left + 2] = i - 6, member end
    redis.call('HDEL', KEYS[2], id)
    if ARGV[3] == '1' then redis.call('SADD', KEYS[4], id) end
  end
end
if ARGV[5] == '1' then add_events(KEYS[3], history_kept, 'c', removed) end
answer[#answer + 1] = at
for i = 1, #left do answer[#answer + 1] = left[i] end
return answer
