#!lua flags=allow-oom
-- uses: args rights clock fence term record when out wake store move
-- Gives a task a new due time and a fresh start: waiting, no attempts.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), id, when, moving (1 or 0),
--       fallback (the record as read at the old shard, or ""), term (of the intake;
--       "": none)
-- Returns {"ok", due}; {"none", now}; {"moved", placement}; {"superseded", term};
--       {"unraised", term}; {"late", now}; the error UNREADABLE with the task unchanged.
--       A task claimed in this ms and to be due now becomes due a ms later, as in put.
-- Executed twice: a record of the same op gives the same answer again.
expect(5, 8)
local r, at = movable()
if not r then return at end
r.due, r.attempts, r.redelivered, r.prior, r.note, r.op = at, 0, false, nil, nil, op
store(id, r, at, ARGV[6])
return {'ok', at}
