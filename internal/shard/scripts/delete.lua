#!lua flags=allow-oom
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
