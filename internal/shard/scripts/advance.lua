#!lua flags=allow-oom
-- uses: args rights clock events left record wake
-- Settles delivered runs of recurring tasks, and makes their next runs due, each only if
-- the task is still leased under the token of its claim.
-- KEYS  due, task, wake, fence
-- ARGV  for each task: token, id, next (ms when the next run is due by the rule; 0: that
--       was the last one), delivered (1; 0: the run was parked as a task of its own)
-- Returns {how many were settled, 1: ended ones are nowhere else (see lib_left), or 0}.
-- Executed twice: the second time changes nothing.
expect(4, 0, 4)
for i = 1, #ARGV, 4 do
  leased_under(ARGV[i])
  sized('id', ARGV[i + 1], 1, 255)
  whole('next', ARGV[i + 2])
  either('delivered', ARGV[i + 3], '0', '1')
end
may('ZSCORE', KEYS[1], '')
may('ZADD', KEYS[1], '', '')
may('ZREM', KEYS[1], '')
may('HGET', KEYS[2], '')
may('HSET', KEYS[2], '', '')
may('HDEL', KEYS[2], '')
may('SPUBLISH', KEYS[3], '')
local settled, first = 0, math.huge
local kept, nowhere = left_of(KEYS[4])
local head = earliest(KEYS[1])
for i = 1, #ARGV, 4 do
  local id, next = ARGV[i + 1], tonumber(ARGV[i + 2])
  local score = redis.call('ZSCORE', KEYS[1], id)
  local held = score and tonumber(score) == tonumber(ARGV[i])
  local record = held and redis.call('HGET', KEYS[2], id)
  local r = record and open(record)
  local at = r and rule_at(r.body)
  if at then
    local _, runs = run_of(r.body, at)
    if next == 0 or runs == 1 then
      redis.call('ZREM', KEYS[1], id)
      redis.call('HDEL', KEYS[2], id)
    else
      r.body = with_run(r.body, at, 0, math.max(runs - 1, 0))
      -- a run that comes again while M changes may have a copy in another shard, which goes on too
      r.redelivered = r.redelivered and nowhere == 0
      r.due, r.attempts, r.note, r.noted, r.prior = next, 0, nil, nil, nil
      redis.call('HSET', KEYS[2], id, seal(r))
      redis.call('ZADD', KEYS[1], next, id)
      first = math.min(first, next)
    end
    if ARGV[i + 3] == '1' then add_events(KEYS[4], kept, 'd', {id}) end
    settled = settled + 1
  end
end
if first < head then redis.call('SPUBLISH', KEYS[3], first) end
return {settled, nowhere}
