#!lua flags=no-writes
-- uses: args rights clock record part
-- Lists tasks of a shard in the order of their scores, and those of one score in the
-- order of their IDs' bytes: a page behind the task that was listed last, which may be
-- gone by now. It is found by its rank and by halving, so a page costs as much in a
-- large shard as in a small one.
-- KEYS  due, task
-- ARGV  from, to (scores, with "-inf" and "inf"), begun (1: tasks of score `from` were
--       listed, the last of them the next one; 0), last (ID), prefix (of the IDs asked
--       for), most (IDs to look at), tasks (to return), bytes (of records to read: the
--       page ends behind the one that reaches it), part (of the records to return: 2 is
--       all, 1 without payloads, 0 without content types and headers as well)
-- Returns {more (1, or 0: there is nothing behind this page), score and ID of the last
--       one looked at, now (ms), then for each task: ID, score, that part of its record,
--       or nil where there is none, and how many bytes were left out}.
-- Executed twice: the same, nothing is written.
expect(2, 9)
local from, last, prefix = ARGV[1], ARGV[4], ARGV[5]
local to = tonumber(ARGV[2])
if not tonumber(from) then refuse('from', from) end
if not to then refuse('to', ARGV[2]) end
either('begun', ARGV[3], '0', '1')
local most, tasks, bytes = whole('most', ARGV[6], 1, MOST_TASKS), whole('tasks', ARGV[7], 1, MOST_TASKS), whole('bytes', ARGV[8], 1)
local wanted = whole('part', ARGV[9], 0, 2)
may(KEYS[1], 'ZSCORE', 'ZRANK', 'ZCOUNT', 'ZRANGE')
may(KEYS[2], 'HGET')

-- before orders IDs as Redis does; Lua's < goes by the locale.
local function before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

local function behind(score, id)
  local present = redis.call('ZSCORE', KEYS[1], id)
  if present and tonumber(present) == tonumber(score) then return redis.call('ZRANK', KEYS[1], id) + 1 end
  local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', KEYS[1], score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if before(redis.call('ZRANGE', KEYS[1], middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

local first = ARGV[3] == '1' and behind(from, last) or redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. from)
local page = redis.call('ZRANGE', KEYS[1], first, first + most - 1, 'WITHSCORES')
local out, read = {#page == 2 * most and 1 or 0, from, last, now}, 0
for i = 1, #page, 2 do
  local id, score = page[i], page[i + 1]
  if tonumber(score) > to then
    out[1] = 0
    break
  end
  if tasks == 0 or read >= bytes then
    out[1] = 1
    break
  end
  out[2], out[3] = score, id
  if string.sub(id, 1, #prefix) == prefix then
    local record = redis.call('HGET', KEYS[2], id)
    local part = record and part_of(record, wanted)
    out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = id, score, part, part and #record - #part or 0
    tasks, read = tasks - 1, read + (record and #record or 0)
  end
end
return out
