#!lua
-- uses: args rights clock fence wake
-- Takes over tasks exported from their old shard, with their scores from before.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, deadline of the export (ms), then for each task: id, score, record
-- Returns {"ok", imported}: the other tasks are or were here, and are skipped;
--       {"late", now}: the deadline is over, and this call imported none of them;
--       {"moved", placement}.
-- Executed twice: the second time all IDs are in handled and are skipped, also past the
--       deadline. Otherwise the mover would give them back to their old shard, and
--       both shards would have them.
expect(5, 2, 3)
for i = 3, #ARGV, 3 do
  if not ((tonumber(ARGV[i + 1]) or -1) >= 0) then refuse('score', ARGV[i + 1]) end
  sized('record', ARGV[i + 2], 1)
end
local ids = {}
for i = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local late = now >= whole('deadline', ARGV[2])
if late and redis.call('HGET', KEYS[3], 'placement') ~= ARGV[1] then return {'late', now} end
may('ZMSCORE', KEYS[1], '')
may('ZRANGEBYSCORE', KEYS[1], '', '')
may('ZADD', KEYS[1], '', '')
may('HSET', KEYS[2], '', '')
may('HINCRBY', KEYS[3], '', '')
may('SMISMEMBER', KEYS[4], '')
may('SADD', KEYS[4], '')
may('SPUBLISH', KEYS[5], '')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
if #ids == 0 then return {'ok', 0} end
local known = redis.call('SMISMEMBER', KEYS[4], unpack(ids))
for i = 1, #ids do
  if late and known[i] == 0 then return {'late', now} end
end
local here = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local scores, records, first = {}, {}, math.huge
for i, id in ipairs(ids) do
  if known[i] == 0 and not here[i] then
    local score, record = ARGV[i * 3 + 1], ARGV[i * 3 + 2]
    scores[#scores + 1] = score == 'inf' and '+inf' or score
    scores[#scores + 1] = id
    records[#records + 1] = id
    records[#records + 1] = record
    first = math.min(first, score == 'inf' and math.huge or tonumber(score))
  end
end
redis.call('SADD', KEYS[4], unpack(ids))
local imported = #scores / 2
if imported == 0 then return {'ok', 0} end
local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], unpack(records))
redis.call('ZADD', KEYS[1], unpack(scores))
redis.call('HINCRBY', KEYS[3], 'moved', imported)
if first < head then redis.call('SPUBLISH', KEYS[5], first) end
return {'ok', imported}
