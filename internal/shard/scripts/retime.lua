#!lua flags=allow-oom
-- uses: args rights clock fence term record part when out wake
-- Gives a waiting task another due time. Attempts, reason and message stay, and so does
-- the first due time of a retry. Only the version that the caller has read
-- is changed.
-- KEYS  due, task, fence, handled, wake
-- ARGV  placement, op (6 bytes), not_after (ms), id, when, moving (1 or 0),
--       fallback (the record as read at the old shard, or ""), term (of the intake;
--       "": none), seen (op of the version that the caller has read), attempts (of it),
--       now (1: try it now, and keep a due time that has passed; `when` is now)
-- Returns {"ok", due}; {"none", now}; {"changed", now}: it is another version, or it was
--       tried since; {"leased", now}; {"parked", now}; {"due", now}: with now=1 it is due
--       already; {"moved", placement}; {"superseded", term}; {"unraised", term};
--       {"late", now}; the error UNREADABLE with the task unchanged.
--       While the task moves, only its old shard knows whether it is leased, parked or
--       due already. Then the version decides alone, as in reschedule.
-- Executed twice: a record of the same op gives the same answer again.
expect(5, 11)
local op, not_after, id, fallback = ARGV[2], whole('not_after', ARGV[3]), ARGV[4], ARGV[7]
sized('op', op, 6, 6)
either('moving', ARGV[6], '0', '1')
sized('seen', ARGV[9], 6, 6)
local attempts = whole('attempts', ARGV[10])
either('now', ARGV[11], '0', '1')
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

-- retry_of returns the body with a new due time in the header duefleet-next, which holds
-- the first due time and the attempts of a retry only for the due time that it names.
local function retry_of(r, from, to)
  local old, new = string.format('%.0f', from), string.format('%.0f', to)
  local begin = #record - #r.body + 1
  local head = payload_at(record, begin) - begin
  local at = string.find(string.sub(r.body, 1, head), '\13duefleet-next', 1, true)
  if not at or #old ~= #new then return r.body end
  at = at + 14 + (r.format >= 2 * FORMAT and 5 or 2) -- behind the length of the value
  local first = string.match(string.sub(r.body, at, head), '^1 %d+ ' .. old)
  if not first then return r.body end
  at = at + #first
  return string.sub(r.body, 1, at - #old - 1) .. new .. string.sub(r.body, at)
end

if not record then
  if fallback == '' or redis.call('SISMEMBER', KEYS[4], id) == 1 then return {'none', now} end
  record = fallback
end
local r = open(record)
if not r then return redis.error_reply('UNREADABLE record: it is damaged, or of a newer format') end
if r.op ~= ARGV[9] or r.attempts ~= attempts then return {'changed', now} end
local score = tonumber(redis.call('ZSCORE', KEYS[1], id) or r.prior) -- nil: the old shard knows it
if score then
  if score < 0 then return {'leased', now} end
  if score == math.huge then return {'parked', now} end
  if ARGV[11] == '1' and score <= now then return {'due', now} end
end
local from, at = r.due, due == now and out_now(id, record) and now + 1 or due
if ARGV[11] == '0' or r.due > at then r.due = at end
if r.due ~= from then r.body = retry_of(r, from, r.due) end
r.prior, r.op = nil, op
local head = earliest(KEYS[1])
redis.call('HSET', KEYS[2], id, seal(r))
redis.call('ZADD', KEYS[1], at, id)
if ARGV[6] == '1' then redis.call('SADD', KEYS[4], id) end
if at < head then redis.call('SPUBLISH', KEYS[5], at) end
return {'ok', r.due}
