#!lua flags=allow-oom
-- uses: args rights clock fence term record when out wake
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
local op, not_after, id, fallback = ARGV[2], whole('not_after', ARGV[3]), ARGV[4], ARGV[7]
sized('op', op, 6, 6)
either('moving', ARGV[6], '0', '1')
local due = due_of(ARGV[5])
local record = redis.call('HGET', KEYS[2], id)
if record and string.sub(record, 14, 19) == op then
  return {'ok', struct.unpack('>I6', record, 2)}
end
if now > not_after then return {'late', now} end
may(KEYS[1], 'ZRANGEBYSCORE', 'ZADD', 'ZSCORE')
may(KEYS[2], 'HSET')
may(KEYS[4], 'SISMEMBER', 'SADD')
may(KEYS[5], 'SPUBLISH')
local other = other_term(KEYS[3], ARGV[8])
if other then return other end
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end

if not record then
  if fallback == '' or redis.call('SISMEMBER', KEYS[4], id) == 1 then return {'none', now} end
  record = fallback
end
local r = open(record)
if not r then return redis.error_reply('UNREADABLE record: it is damaged, or of a newer format') end
r.due = due == now and out_now(id, record) and now + 1 or due
r.attempts, r.redelivered, r.prior, r.note, r.op = 0, false, nil, nil, op
local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], id, seal(r))
redis.call('ZADD', KEYS[1], r.due, id)
if ARGV[6] == '1' then redis.call('SADD', KEYS[4], id) end
if r.due < head then redis.call('SPUBLISH', KEYS[5], r.due) end
return {'ok', r.due}
