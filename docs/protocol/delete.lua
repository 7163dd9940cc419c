#!lua flags=allow-oom
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
-- uses: clock check
-- Removes tasks in whatever state they are.
-- KEYS  due, task, gate, ledger
-- ARGV  placement, not_after (ms), ledger (1: note the IDs there, else 0), id...
-- Returns {"ok", 1 or 0 for each id: was it there}; {"moved", placement};
--       {"late", now} with nothing written.
-- Executed twice: the second time nothing is there any more; a caller that
--       retries after a lost reply may be told "not there" of what it removed.
if now > tonumber(ARGV[2]) then return {'late', now} end
local moved = check(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
local answer = {'ok'}
for i = 4, #ARGV do
  local there = redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i])
  if ARGV[3] == '1' then redis.call('SADD', KEYS[4], ARGV[i]) end
  answer[#answer + 1] = there
end
return answer
