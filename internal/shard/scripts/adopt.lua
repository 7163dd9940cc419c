#!lua
-- uses: clock check wake
-- Takes over tasks on loan from their old shard, with their scores from before.
-- KEYS  due, task, gate, ledger, wake
-- ARGV  placement, deadline of the loan (ms), then for each task: id, score, record
-- Returns {"ok", adopted}: the others were here, or had been, and are skipped;
--       {"late", now} past the deadline; {"moved", placement}.
-- Executed twice: the second time all are in the ledger and are skipped.
if now >= tonumber(ARGV[2]) then return {'late', now} end
local moved = check(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
local adopted, first = 0, math.huge
local head = earliest(KEYS[1])
for i = 3, #ARGV, 3 do
  local id, score, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('SADD', KEYS[4], id) == 1 and not redis.call('ZSCORE', KEYS[1], id) then
    redis.call('HSET', KEYS[2], id, record)
    redis.call('ZADD', KEYS[1], score == 'inf' and '+inf' or score, id)
    first = math.min(first, score == 'inf' and math.huge or tonumber(score))
    adopted = adopted + 1
  end
end
if adopted > 0 then redis.call('HINCRBY', KEYS[3], 'moved', adopted) end
if first < head then redis.call('SPUBLISH', KEYS[5], first) end
return {'ok', adopted}
