#!lua flags=allow-oom
-- uses: args rights history
-- Asks whether a delivery is to be handled, and notes that a handler has it.
-- KEYS  history
-- ARGV  due and scheduled (ms, of the delivery), remember (1; 0: write nothing), window
--       (ms)
-- Returns "run"; "done": it was handled within the window; "over": the producer has
--       cancelled the task since, or its consumer stored it and the producer has replaced
--       the task since.
-- Executed twice: the same answer.
expect(1, 4)
whole('due', ARGV[1])
whole('scheduled', ARGV[2])
either('remember', ARGV[3], '0', '1')
local window = whole('window', ARGV[4], ARGV[3] == '1' and 1 or 0)
local due = ARGV[1]
local done = redis.call('HGET', history, due)
if ARGV[3] == '1' and done and done ~= '0' then return 'done' end
local start = chain_start_of(due, ARGV[2])
if superseded(ARGV[2], start ~= tonumber(due) and start) then return 'over' end
if ARGV[3] == '1' then
  may('HSET', history, '', '')
  may('PTTL', history)
  may('PEXPIRE', history, '')
  redis.call('HSETNX', history, due, 0)
  raise('newest', start)
  keep(window)
end
return 'run'
