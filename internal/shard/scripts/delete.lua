#!lua flags=allow-oom
-- uses: args rights clock fence
-- Removes tasks in any state.
-- KEYS  due, task, fence, handled
-- ARGV  placement, not_after (ms), handled (1: note the IDs there, else 0), id...
-- Returns {"ok", for each id 0: it was not there, 1: it was, 2: it was, and a message
--       of it may be out: it was leased, or tried before; then now (ms)};
--       {"moved", placement}; {"late", now} with nothing written.
-- Executed twice: the second time finds nothing. So a caller that retries after a
--       lost reply may get 0 for a task that it removed.
expect(4, 3, 1)
either('handled', ARGV[3], '0', '1')
if now > whole('not_after', ARGV[2]) then return {'late', now} end
may(KEYS[1], 'ZSCORE', 'ZREM')
may(KEYS[2], 'HGET', 'HDEL')
may(KEYS[4], 'SADD')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
local answer = {'ok'}
for i = 4, #ARGV do
  local id, there = ARGV[i], 0
  local score = redis.call('ZSCORE', KEYS[1], id)
  if score then
    local record = redis.call('HGET', KEYS[2], id) or ''
    -- format 1 or 2 without a flag: it was never tried
    local first = string.byte(record)
    local fresh = tonumber(score) >= 0 and (first == 16 or first == 32)
    there = fresh and 1 or 2
    redis.call('ZREM', KEYS[1], id)
  end
  redis.call('HDEL', KEYS[2], id)
  if ARGV[3] == '1' then redis.call('SADD', KEYS[4], id) end
  answer[#answer + 1] = there
end
answer[#answer + 1] = now
return answer
