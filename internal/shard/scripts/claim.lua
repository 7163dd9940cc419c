#!lua flags=allow-oom
-- uses: args rights clock record wake attention
-- Leases what is due: tasks whose time has come, and tasks whose lease ran out.
-- When several claimants poll a shard, the last to claim is the primary while it
-- stays. Another claimant gets only tasks that the primary leaves for longer than
-- grace, and becomes the primary then.
-- KEYS  due, task, fence, memory (of this claimant)
-- ARGV  request (a number, greater than the claimant's last), limit, lease (ms),
--       budget (bytes of records; the first task always fits), not_after (ms),
--       stay (ms: how much longer the claimant polls the shard), grace (ms)
-- Returns {token, now (µs), next (ms, when this shard next needs attention;
--       -1: never), skipped, primary_until (ms until when another claimant is the
--       primary; 0: none is), id, record, id, record, ...}.
--       token is the score the tasks have now: minus the lease's deadline in ms, with
--       a fraction that tells apart claims of one millisecond.
--       skipped counts tasks without a record, now parked, and records of a newer
--       format, left alone for a minute.
--       {"late", now (ms)}, or {"older", the request remembered}: nothing was done,
--       since nobody waits for the answer any more.
-- Executed twice: the same request answers with what is left of its batch, also
--       when it is late.
expect(4, 7)
local request, limit = ARGV[1], whole('limit', ARGV[2], 0, 1000)
local lease, budget = whole('lease', ARGV[3], 1), whole('budget', ARGV[4], 1)
local not_after, stay, grace = whole('not_after', ARGV[5]), whole('stay', ARGV[6]), whole('grace', ARGV[7])
sized('request', request, 1, 64)
local due, tasks = KEYS[1], KEYS[2]

local last, token = string.match(redis.call('GET', KEYS[4]) or '', '^(.*) (%S+)$')
if last == request then
  local answer = {token, now_us, attention(due), 0, 0}
  local ids = redis.call('ZRANGEBYSCORE', due, token, token)
  local records = #ids > 0 and redis.call('HMGET', tasks, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    answer[#answer + 1] = id
    answer[#answer + 1] = records[i]
  end
  return answer
end

if last and (tonumber(last) or 0) > (tonumber(request) or math.huge) then return {'older', last} end
if now > not_after then return {'late', now} end

may('ZADD', due, '', '')
may('HMGET', tasks, '')
may('HSET', tasks, '', '')
may('HSET', KEYS[3], '', '')
may('SET', KEYS[4], '')
local seen = redis.call('HMGET', KEYS[3], 'claims', 'primary')
local number, lease_end = seen[1] or 0, first_lease_end(due)
local primary_until, primary = string.match(seen[2] or '', '^(%d+) (.*)$')
primary_until = primary ~= KEYS[4] and tonumber(primary_until or 0) or 0
if primary_until > now then
  local next = attention(due, lease_end)
  if next == -1 or next > now - grace then return {'', now_us, next, 0, primary_until} end
end

local until_now = string.format('%d', now) -- Redis 7.0 writes a number with 17 digits, which costs more
local ids, lapsed = {}, 0 -- how many of the tasks had a lease that ran out; they come first
if limit > 0 and lease_end <= now then
  ids = redis.call('ZRANGEBYSCORE', due, '-' .. until_now, '(0', 'LIMIT', '0', ARGV[2])
  lapsed = #ids
end
if limit > lapsed then
  local waiting = redis.call('ZRANGEBYSCORE', due, '0', until_now, 'LIMIT', '0', limit - lapsed)
  for i = 1, #waiting do ids[lapsed + i] = waiting[i] end
end
local ends
repeat -- skips the tokens of other leases that end in the same ms
  number = number + 1
  ends = now + lease + (number % 1023 + 1) / 1024
  token = string.format('%.17g', -ends)
until lease_end == math.huge or redis.call('ZCOUNT', due, token, token) == 0

-- Records are read in steps that fit into the budget if none is larger than the largest so far.
local answer, scores, skipped, size = {token, now_us, -1, 0, 0, nil, nil}, {nil, nil}, 0, 0
local from, step, largest = 1, 1, 1
while from <= #ids do
  local to = math.min(from + step - 1, #ids)
  local records = redis.call('HMGET', tasks, unpack(ids, from, to))
  for i = from, to do
    local id, record, score = ids[i], records[i - from + 1], token
    local bytes = record and #record or 0
    largest = math.max(largest, bytes)
    if size > 0 and size + bytes > budget then
      to = #ids
      break
    end
    local r = i <= lapsed and record and open(record)
    local before = r and (r.prior or r.due) -- prior is of an export; a claimed task was due
    if not record then
      skipped, score = skipped + 1, '+inf'
    elseif not known(record) then
      skipped, score = skipped + 1, i <= lapsed and -(now + 60000) or now + 60000
    elseif r then
      r.prior, r.redelivered = nil, true -- also after an export: it may have been imported
      record = seal(r)
      redis.call('HSET', tasks, id, record)
      if before > now then score = before end
    end
    if score == token then
      size = size + #record
      answer[#answer + 1] = id
      answer[#answer + 1] = record
    end
    scores[#scores + 1] = score
    scores[#scores + 1] = id
  end
  from, step = to + 1, math.max(1, math.min(64, math.floor(budget / largest)))
end
if #scores > 0 then redis.call('ZADD', due, unpack(scores)) end
if #answer > 5 then
  redis.call('HSET', KEYS[3], 'claims', number, 'primary', string.format('%d %s', now + stay, KEYS[4]))
  redis.call('SET', KEYS[4], request .. ' ' .. token, 'PX', ARGV[3])
  lease_end = math.min(lease_end, ends)
end
answer[3], answer[4] = attention(due, lapsed == 0 and lease_end or nil), skipped
return answer
