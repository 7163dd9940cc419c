#!lua flags=allow-oom
-- uses: args rights clock fence term record part when out wake store move
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
sized('seen', ARGV[9], 6, 6)
local attempts = whole('attempts', ARGV[10])
either('now', ARGV[11], '0', '1')

-- retry_of returns the body with the new due time in the header duefleet-next, which holds
-- the first due time and the attempts of a retry only for the due time that it names.
local function retry_of(r, from, record)
  local old, new = string.format('%.0f', from), string.format('%.0f', r.due)
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

local r, at, record = movable()
if not r then return at end
if r.op ~= ARGV[9] or r.attempts ~= attempts then return {'changed', now} end
local score = tonumber(redis.call('ZSCORE', KEYS[1], id) or r.prior) -- nil: the old shard knows it
if score then
  if score < 0 then return {'leased', now} end
  if score == math.huge then return {'parked', now} end
  if ARGV[11] == '1' and score <= now then return {'due', now} end
end
local from = r.due
if ARGV[11] == '0' or from > at then r.due = at end
if r.due ~= from then r.body = retry_of(r, from, record) end
r.prior, r.op = nil, op
store(id, r, at, ARGV[6])
return {'ok', r.due}
