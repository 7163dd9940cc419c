#!lua flags=allow-oom
-- uses: args rights clock events record wake
-- Gives leased tasks back, each only if it is still leased under the token of its
-- claim: due again after a delay, or parked. A mover gives an export back instead, to
-- its score from before. Only the caller knows which of the two applies: a claimed task
-- may not be due any more, after Redis's clock was set back. A record that can't be read
-- keeps its bytes.
-- KEYS  due, task, wake, fence
-- ARGV  for each task: token, id, delay (ms; 0: at its due time; "park"; "back": it
--       was exported, and the rest is ignored), attempts to add (0 or 1),
--       redelivered (1: an attempt may have reached the broker), reason ("" keeps the
--       last one; the time is kept with a new reason, and when a task is parked)
-- Returns how many were given back.
-- Executed twice: the second time changes nothing.
expect(4, 0, 6)
for i = 1, #ARGV, 6 do
  leased_under(ARGV[i])
  if ARGV[i + 2] ~= 'park' and ARGV[i + 2] ~= 'back' then whole('delay', ARGV[i + 2]) end
  either('attempts', ARGV[i + 3], '0', '1')
  either('redelivered', ARGV[i + 4], '0', '1')
  sized('reason', ARGV[i + 5], 0, 65520)
end
may('ZSCORE', KEYS[1], '')
may('ZADD', KEYS[1], '', '')
may('HGET', KEYS[2], '')
may('HSET', KEYS[2], '', '')
may('SPUBLISH', KEYS[3], '')
local released, first, kept = 0, math.huge, history_of(KEYS[4])
local head = earliest(KEYS[1])
for i = 1, #ARGV, 6 do
  local id, delay = ARGV[i + 1], ARGV[i + 2]
  local score = redis.call('ZSCORE', KEYS[1], id)
  local record = redis.call('HGET', KEYS[2], id)
  if score and record and tonumber(score) == tonumber(ARGV[i]) then
    local r = open(record)
    local back = r and r.due or now
    if delay == 'back' then
      if r then back, r.prior = r.prior or r.due, nil end
    else
      if r then
        r.prior = nil
        r.attempts = math.min(r.attempts + tonumber(ARGV[i + 3]), 65535)
        r.redelivered = r.redelivered or ARGV[i + 4] == '1'
        if ARGV[i + 5] ~= '' then r.note, r.noted = ARGV[i + 5], now end
        if delay == 'park' then r.note, r.noted = r.note or '', now end
      end
      if delay == 'park' then
        back = math.huge
      elseif delay ~= '0' then
        back = math.max(now + tonumber(delay), back)
      end
    end
    if r then redis.call('HSET', KEYS[2], id, seal(r)) end
    redis.call('ZADD', KEYS[1], back == math.huge and '+inf' or back, id)
    first = math.min(first, back)
    if delay == 'park' then
      add_events(KEYS[4], kept, 'p', {id}, nil, {r and r.note})
    elseif delay ~= 'back' and ARGV[i + 3] == '1' then
      add_events(KEYS[4], kept, 't', {id}, {back}, {ARGV[i + 5]})
    end
    released = released + 1
  end
end
if first < head then redis.call('SPUBLISH', KEYS[3], first) end
return released
