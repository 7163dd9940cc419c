#!lua
-- uses: clock check record
-- Leases misplaced tasks to a mover, keeping their scores from before in the
-- records: waiting ones that are not about to be delivered, ones whose lease ran
-- out, and parked ones.
-- KEYS  due, task, gate, ledger, memory (of this mover)
-- ARGV  placement, request, lease (ms), soon (ms: what is due within it, or was
--       within the last second, is left for delivery), id...
-- Returns {"ok", token, deadline (ms), id, score, record, ...};
--       {"moved", placement}.
-- Executed twice: the same request answers with the same loan.
local due, tasks = KEYS[1], KEYS[2]
local request, lease, soon = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local moved = check(KEYS[3], KEYS[4], ARGV[1])
if moved then return moved end

local function entry(answer, id, r)
  local prior = r.prior
  r.prior = nil
  answer[#answer + 1] = id
  answer[#answer + 1] = string.format('%.17g', prior)
  answer[#answer + 1] = seal(r)
end

local remembered = redis.call('GET', KEYS[5])
if remembered and string.sub(remembered, 1, #request + 1) == request .. ' ' then
  local token = string.sub(remembered, #request + 2)
  local answer = {'ok', token, math.floor(-token)}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, token, token)) do
    local r = open(redis.call('HGET', tasks, id))
    if r and r.prior then entry(answer, id, r) end
  end
  return answer
end

local number = redis.call('HGET', KEYS[3], 'claims') or 0
local token
repeat -- past the tokens of other leases that end in the same ms
  number = number + 1
  token = string.format('%.17g', -(now + lease + (number % 1023 + 1) / 1024))
until redis.call('ZCOUNT', due, token, token) == 0
local answer = {'ok', token, now + lease}
for i = 5, #ARGV do
  local id = ARGV[i]
  local score = tonumber(redis.call('ZSCORE', due, id) or -math.huge)
  local record = score >= -now and redis.call('HGET', tasks, id)
  local r = record and open(record)
  if score >= -now and not record then
    redis.call('ZREM', due, id) -- nothing is left of it that could be moved
  end
  if r and score < 0 then -- its lease ran out, and nobody claims here
    score, r.redelivered = r.prior or r.due, true
  end
  if r and (score > now + soon or score < now - 1000) then
    r.prior = score
    redis.call('HSET', tasks, id, seal(r))
    redis.call('ZADD', due, token, id)
    entry(answer, id, r)
  end
end
if #answer > 3 then
  redis.call('HSET', KEYS[3], 'claims', number)
  redis.call('SET', KEYS[5], request .. ' ' .. token, 'PX', lease)
end
return answer
