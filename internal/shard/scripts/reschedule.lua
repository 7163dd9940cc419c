#!lua flags=allow-oom
-- uses: args rights clock events fence term record when out wake store move
-- Gives tasks new due times and a fresh start: waiting, no attempts.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, moving (1 while the tasks are moving, else 0), not_after (ms), term (of
--       the intake; "": none), bytes (of records to read; the one that reaches the limit
--       is the last), then for each task: op (6 bytes), id, when, fallback (the record as
--       read at the old shard, or "")
-- Returns {"ok", then for each of the first tasks, at least one, the due time in ms, or 0:
--       none, or -1: it can't be read, and stays as it is};
--       {"moved", placement}, {"superseded", term}, {"unraised", term} or
--       {"late", now} with nothing written.
--       A task claimed in this ms and to be due now becomes due a ms later, as in put.
-- Executed twice: a record of the same op stays as it is and gives the same answer again.
--       If the call is refused now, it answers about those before the first other record.
return move(4, function(r, at)
  r.due, r.attempts, r.redelivered, r.note = at, 0, false, nil
end)
