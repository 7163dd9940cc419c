#!lua flags=allow-oom
-- uses: args rights clock history prune
-- Asks whether a delivery may be followed by another one of the same task, and notes
-- that both belong to the same chain. A long delivery history is pruned: deliveries handled
-- before the window, and deliveries due before it and never handled.
-- KEYS  history
-- ARGV  due and scheduled (ms, of the delivery), next (ms; "": it is to be parked),
--       window (ms)
-- Returns {"ok", next (ms)}, which is later than asked for if another version of the task
--       has a delivery due then; {"over"}: the producer has cancelled or replaced the task.
-- Executed twice: the same, unless the producer changed it in between; a long
--       history is pruned further.
expect(1, 4)
local due, scheduled, window = ARGV[1], ARGV[2], whole('window', ARGV[4])
whole('due', due)
whole('scheduled', scheduled)
if ARGV[3] ~= '' then whole('next', ARGV[3]) end
local start = chain_start_of(due, scheduled)
if superseded(scheduled, start) then return {'over'} end
may('HSET', history, '', '')
may('PTTL', history)
may('PEXPIRE', history, '')
may('HLEN', history)
may('HGETALL', history)
may('HDEL', history, '')
if ARGV[3] == '' then
  raise('newest', start)
  keep(window)
  prune(window, window)
  return {'ok', 0}
end
local next = math.max(tonumber(ARGV[3]), tonumber(due) + 1)
-- two versions whose deliveries were due at one time would take each other's place here
local link, field, there = string.format('%d ', start) .. scheduled
repeat
  field = 'r' .. string.format('%d', next)
  there = redis.call('HGET', history, field)
  local free = not there or there == link
  if not free then next = next + 1 end
until free
redis.call('HSET', history, field, link)
raise('newest', start)
keep(math.max(next - now, 0) + window)
prune(window, window)
return {'ok', next}
