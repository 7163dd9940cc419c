#!lua flags=allow-oom
-- uses: args rights clock events fence term record part when out wake store move
-- Gives waiting tasks other due times. Attempts, reason and message stay, and so does
-- the first due time of a retry. Only the version that the caller has read
-- is changed.
-- KEYS  due, task, fence, handled, wake
-- ARGV  as in reschedule, and for each task also: seen (op of the version that the caller
--       has read), attempts (of it), now (1: try it now, and keep a due time that has
--       passed; `when` is now)
-- Returns what reschedule does, and for a task that stays as it is also -2: it is another
--       version, or it was tried since; -3: leased; -4: parked; -5: with now=1 it is due
--       already.
--       While the tasks move, only their old shard knows whether they are leased, parked or
--       due already. Then the version decides alone, as in reschedule.
-- Executed twice: as in reschedule.
local CHANGED, LEASED, PARKED, DUE = -2, -3, -4, -5
for i = 6, #ARGV - 6, 7 do
  sized('seen', ARGV[i + 4], 6, 6)
  whole('attempts', ARGV[i + 5])
  either('now', ARGV[i + 6], '0', '1')
end

-- retry_of returns the body with the new due time in the header duefleet-next, which holds
-- the first due time and the attempts of a retry only for the due time that it names.
local function retry_of(r, from, record)
  if rule_at(r.body) then return r.body end -- its runs are retried as tasks of their own
  local old, new = string.format('%d', from), string.format('%d', r.due)
  local begin = #record - #r.body + 1
  local head = payload_at(record, begin) - begin
  local at = string.find(string.sub(r.body, 1, head), '\13duefleet-next', 1, true)
  if not at or #old ~= #new then return r.body end
  at = at + 14 + (string.byte(r.body, inside(r.body)) == 2 and 5 or 2) -- behind the length of the value
  local first = string.match(string.sub(r.body, at, head), '^1 %d+ ' .. old)
  if not first then return r.body end
  at = at + #first
  return string.sub(r.body, 1, at - #old - 1) .. new .. string.sub(r.body, at)
end

return move(7, function(r, at, i, record)
  local try_now = ARGV[i + 6] == '1'
  if r.op ~= ARGV[i + 4] or r.attempts ~= tonumber(ARGV[i + 5]) then return CHANGED end
  local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i + 1]) or r.prior) -- nil: the old shard knows it
  if score then
    if score < 0 then return LEASED end
    if score == math.huge then return PARKED end
    if try_now and score <= now then return DUE end
  end
  local from = r.due
  if not try_now or from > at then r.due = at end
  if r.due ~= from then r.body = retry_of(r, from, record) end
end)
