#!lua flags=allow-oom
-- uses: args rights clock events record wake
-- Makes parked tasks due now, with a fresh count of attempts.
-- KEYS  due, task, wake, fence
-- ARGV  id...
-- Returns how many were parked and are due now. Records that can't be read stay parked.
-- Executed twice: the second time finds none of them parked.
expect(4, 0, 1)
may('ZSCORE', KEYS[1], '')
may('ZADD', KEYS[1], '', '')
may('HGET', KEYS[2], '')
may('HSET', KEYS[2], '', '')
may('SPUBLISH', KEYS[3], '')
local replayed = {}
local head = earliest(KEYS[1])
for _, id in ipairs(ARGV) do
  local record = redis.call('HGET', KEYS[2], id)
  local r = record and redis.call('ZSCORE', KEYS[1], id) == 'inf' and open(record)
  if r then
    r.attempts, r.note = 0, nil
    redis.call('HSET', KEYS[2], id, seal(r))
    redis.call('ZADD', KEYS[1], now, id)
    replayed[#replayed + 1] = id
  end
end
add_events(KEYS[4], history_of(KEYS[4]), 'r', replayed)
if #replayed > 0 and now < head then redis.call('SPUBLISH', KEYS[3], now) end
return #replayed
