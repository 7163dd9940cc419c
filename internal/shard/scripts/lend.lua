#!lua
-- uses: clock check record
-- Leases misplaced tasks to a mover, keeping their scores from before in the
-- records: waiting ones that are not about to be delivered, and parked ones.
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
    entry(answer, id, open(redis.call('HGET', tasks, id)))
  end
  return answer
end

local number = redis.call('HGET', KEYS[3], 'claims') or 0
local token = string.format('%.17g', -(now + lease + (number % 1023 + 1) / 1024))
local answer = {'ok', token, now + lease}
for i = 5, #ARGV do
  local id = ARGV[i]
  local score = tonumber(redis.call('ZSCORE', due, id) or -1)
  local record = score >= 0 and redis.call('HGET', tasks, id)
  local r = record and open(record)
  if r and (score > now + soon or score < now - 1000) then
    r.prior = score
    redis.call('HSET', tasks, id, seal(r))
    redis.call('ZADD', due, token, id)
    entry(answer, id, r)
  end
end
if #answer > 3 then
  redis.call('HSET', KEYS[3], 'claims', number + 1)
  redis.call('SET', KEYS[5], request .. ' ' .. token, 'PX', lease)
end
return answer
