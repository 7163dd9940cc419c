#!lua
-- uses: args rights clock fence record
-- Leases misplaced tasks to a mover: waiting tasks that are not about to be
-- delivered, tasks whose lease ran out, and parked tasks. If a score from before
-- isn't the due time, the record keeps it. Records are read one by one until the
-- next one doesn't fit into the budget.
-- KEYS  due, task, fence, handled, memory (of this mover)
-- ARGV  placement, request, lease (ms), soon (ms: tasks due within it, or due within
--       the last second, are left for delivery), budget (bytes of records; the
--       first task always fits), id...
-- Returns {"ok", token, deadline (ms), left (how many IDs at the end were not looked
--       at: the budget was used up), id, score, record, ...}; {"moved", placement}.
-- Executed twice: the same request answers with the same export.
local due, tasks = KEYS[1], KEYS[2]
expect(5, 5, 1)
local request, lease, soon = ARGV[2], whole('lease', ARGV[3], 1), whole('soon', ARGV[4])
local budget = whole('budget', ARGV[5], 1)
may('ZRANGEBYSCORE', due, '', '')
may('ZCOUNT', due, '', '')
may('ZMSCORE', due, '')
may('ZREM', due, '')
may('ZADD', due, '', '')
may('HGET', tasks, '')
may('HSET', tasks, '', '')
may('GET', KEYS[5])
may('SET', KEYS[5], '')
local moved = fenced(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end

local function entry(answer, id, score, record)
  answer[#answer + 1] = id
  answer[#answer + 1] = string.format('%.17g', score)
  answer[#answer + 1] = record
end

local function without_prior(r)
  r.prior = nil
  return seal(r)
end

local remembered = redis.call('GET', KEYS[5])
if remembered and string.sub(remembered, 1, #request + 1) == request .. ' ' then
  local token, left = string.match(remembered, '^(%S+) (%d+)$', #request + 2)
  local answer = {'ok', token, math.floor(-token), tonumber(left)}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, token, token)) do
    local r = open(redis.call('HGET', tasks, id))
    if r then entry(answer, id, r.prior or r.due, without_prior(r)) end
  end
  return answer
end

local number = redis.call('HGET', KEYS[3], 'claims') or 0
local token
repeat -- skips the tokens of other leases that end in the same ms
  number = number + 1
  token = string.format('%.17g', -(now + lease + (number % 1023 + 1) / 1024))
until redis.call('ZCOUNT', due, token, token) == 0
local answer = {'ok', token, now + lease, 0}
local ids, seen = {}, {}
for i = 6, #ARGV do
  local id = ARGV[i]
  if not seen[id] then ids[#ids + 1] = id end
  seen[id] = true
end
if #ids == 0 then return answer end
local stored = redis.call('ZMSCORE', due, unpack(ids))
local leased, sealed, size = {}, {}, 0

-- take exports one task if it may be exported.
local function take(id, score, record)
  local r = record and open(record)
  if not record then
    redis.call('ZREM', due, id) -- without a record there is nothing to move
  end
  if r and score < 0 then -- its lease ran out, and nobody claims here
    score, r.redelivered, record = r.prior or r.due, true, nil
  end
  if r and (score > now + soon or score < now - 1000) then
    leased[#leased + 1] = token
    leased[#leased + 1] = id
    if not record or score ~= r.due then
      r.prior = score
      sealed[#sealed + 1] = id
      sealed[#sealed + 1] = seal(r)
      record = without_prior(r)
    end
    size = size + #record
    entry(answer, id, score, record)
  end
end

for i, id in ipairs(ids) do
  local score = tonumber(stored[i] or -math.huge)
  local later = score >= 0 and score >= now - 1000 and score <= now + soon
  if score >= -now and not later then
    local record = redis.call('HGET', tasks, id)
    if size > 0 and size + #(record or '') > budget then
      answer[4] = #ids - i + 1
      break
    end
    take(id, score, record)
  end
end
if #leased > 0 then
  if #sealed > 0 then redis.call('HSET', tasks, unpack(sealed)) end
  redis.call('ZADD', due, unpack(leased))
  redis.call('HSET', KEYS[3], 'claims', number)
  redis.call('SET', KEYS[5], request .. ' ' .. token .. ' ' .. answer[4], 'PX', lease)
end
return answer
