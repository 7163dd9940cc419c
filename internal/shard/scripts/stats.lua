#!lua flags=no-writes
-- uses: clock
-- Counts the tasks of one shard.
-- KEYS  due
-- Returns {now (ms), pending, backlog, leased, parked, oldest (ms: the score of
--       the earliest waiting task; -1: none waits)}.
-- Executed twice: the same, nothing is written.
local pending = redis.call('ZCARD', KEYS[1])
if pending == 0 then
  return {now, 0, 0, 0, 0, -1}
end
local function count(from, to) return redis.call('ZCOUNT', KEYS[1], from, to) end
local head = redis.call('ZRANGEBYSCORE', KEYS[1], 0, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {
  now,
  pending,
  count(-now, now),
  count('-inf', '(' .. string.format('%.17g', -now)),
  count('+inf', '+inf'),
  head and tonumber(head) or -1,
}
