#!lua flags=allow-oom
-- uses: args rights clock events fence record wake store group
-- Stores a task again for its consumer, which has a delivery of it: to be delivered
-- again, or parked. A task that was put, moved, replayed or stored by its consumer
-- after that delivery stays as it is, unless its op is `replace`.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), id, due and attempt (of the
--       delivery), next (ms when it is due again; "park"), attempts (so far),
--       scheduled (ms), moving (1 or 0), reason ("": none), replace (op of a
--       record, or ""), since (1: the old shard has a copy stored after the
--       delivery), body
-- Returns {"ok"}; {"none", due (ms), scheduled (ms), op} of the record that stays, or
--       {"none"} if it can't be read; {"old"}: the old shard's copy stays, since the
--       task wasn't here under this placement; {"moved", placement}; {"late", now}.
-- Executed twice: a record of the same op gives the same answer again.
expect(5, 14)
local op, id, due, attempt = ARGV[2], ARGV[4], whole('due', ARGV[5]), whole('attempt', ARGV[6])
local not_after, attempts, scheduled = whole('not_after', ARGV[3]), whole('attempts', ARGV[8]), whole('scheduled', ARGV[9])
local next = ARGV[7] ~= 'park' and whole('next', ARGV[7])
sized('op', op, 6, 6)
sized('id', id, 1, 255)
either('moving', ARGV[10], '0', '1')
sized('reason', ARGV[11], 0, 65520)
if ARGV[12] ~= '' then sized('replace', ARGV[12], 6, 6) end
either('since', ARGV[13], '0', '1')
sized('body', ARGV[14], 1)
local record = redis.call('HGET', KEYS[2], id)
if record and string.sub(record, 14, 19) == op then return {'ok'} end
if now > math.min(not_after, last_put(ARGV[14])) then return {'late', now} end
may('ZRANGEBYSCORE', KEYS[1], '', '')
may('ZADD', KEYS[1], '', '')
may('HSET', KEYS[2], '', '')
may('SISMEMBER', KEYS[4], '')
may('SADD', KEYS[4], '')
may('SPUBLISH', KEYS[5], '')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end
-- a task that was here is newer than the old shard's copy, whatever the due of that:
-- a caller stored it here and died before it removed the copy
if ARGV[13] == '1' and redis.call('SISMEMBER', KEYS[4], id) == 0 then return {'old'} end
local there = record and open(record)
if record and not (there and there.op == ARGV[12]) then
  -- due alone doesn't order versions: two may be due in the same ms, and while the shard
  -- count changes a newer one here may be due before a delivery from the other shard
  local newer = not there or there.scheduled > scheduled
  local same = there and there.due == due and there.attempts + 1 >= attempt
  local behind = there and there.due < due
  if newer or not same and not behind then
    return there and {'none', there.due, there.scheduled, there.op} or {'none'}
  end
end
local r = {attempts = math.min(attempts, 65535), due = due, scheduled = scheduled, op = op, body = ARGV[14]}
local score = math.huge
if next then r.due, score = next, next end
if ARGV[11] ~= '' or not next then r.note, r.noted = ARGV[11], now end
local head = earliest(KEYS[1])
store(id, r, score, ARGV[10])
add_events(KEYS[3], history_kept, next and 't' or 'p', {id}, {next or 0}, {ARGV[11]})
if score < head then redis.call('SPUBLISH', KEYS[5], score) end
return {'ok'}
