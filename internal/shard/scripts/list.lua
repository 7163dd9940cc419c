#!lua flags=no-writes
-- uses: args rights clock record part
-- Lists a page of tasks of a shard by score, and tasks of one score by the bytes of their
-- IDs. The page starts after the last task of the page before, even if that task was
-- removed since. The script finds the place by rank or binary search, so a page costs the
-- same in a large shard as in a small one.
-- KEYS  due, task
-- ARGV  from, to: scores, also "-inf" and "inf".
--       begun: 1 if the page follows another; then `from` and `last` are the score and ID
--       of the last task looked at. Else 0.
--       last: ID.
--       prefix: of the IDs to return.
--       most: IDs to look at, at most.
--       tasks: to return, at most.
--       bytes: of records to read; the record that reaches the limit is the last.
--       part: of each record to return. 2: all; 1: without the payload; 0: without the
--       content type and headers too.
-- Returns {more (1, or 0 at the end), score and ID of the last task looked at, now (ms),
--       then for each task: ID, score, the part of its record (nil if it has none), and
--       the number of bytes left out}.
-- Executed twice: the same reply; nothing is written.
expect(2, 9)
local from, last, prefix = ARGV[1], ARGV[4], ARGV[5]
if not tonumber(from) then refuse('from', from) end
if not tonumber(ARGV[2]) then refuse('to', ARGV[2]) end
either('begun', ARGV[3], '0', '1')
local most, tasks, bytes = whole('most', ARGV[6], 1, 1000), whole('tasks', ARGV[7], 1, 1000), whole('bytes', ARGV[8], 1)
local wanted = whole('part', ARGV[9], 0, 2)
may('ZSCORE', KEYS[1], '')
may('ZRANK', KEYS[1], '')
may('ZCOUNT', KEYS[1], '', '')
may('ZRANGE', KEYS[1], '', '')
may('HGET', KEYS[2], '')

-- before compares IDs as Redis does; Lua's < depends on the locale.
local function before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- behind returns the rank of the first task after this score and ID.
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

-- without scores, which are needed for few tasks if there is a prefix
local first = ARGV[3] == '1' and behind(from, last) or redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. from)
local stop = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[2])
local page = first < stop and redis.call('ZRANGE', KEYS[1], first, math.min(first + most, stop) - 1) or {}
local out, read, looked = {first + #page < stop and 1 or 0, from, last, now}, 0, nil
for i = 1, #page do
  local id = page[i]
  if tasks == 0 or read >= bytes then
    out[1] = 1
    break
  end
  looked = id
  if string.sub(id, 1, #prefix) == prefix then
    local record = redis.call('HGET', KEYS[2], id)
    local part = record and part_of(record, wanted)
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = id, redis.call('ZSCORE', KEYS[1], id), part
    out[n + 4] = part and #record - #part or 0
    tasks, read = tasks - 1, read + (record and #record or 0)
  end
end
if looked then out[2], out[3] = redis.call('ZSCORE', KEYS[1], looked), looked end
return out
