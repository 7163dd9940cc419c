-- A move gives stored tasks another due time. Of a recurring task it moves the stored run,
-- whose planned time stays. Its script has the keys due, task, fence,
-- handled and wake. ARGV is placement, moving, not_after, term, bytes; then for each task
-- first op, id, when and fallback.
local NONE, UNREADABLE = 0, -1

-- move carries out a move whose tasks have `each` arguments, and returns the script's
-- reply. change sets the fields of a record for its new due time, at. It returns nothing,
-- or the answer of a task that stays as it is. i is where the task's arguments begin.
local function move(each, change)
  expect(5, 5, each)
  local not_after, bytes = whole('not_after', ARGV[3]), whole('bytes', ARGV[5], 1)
  either('moving', ARGV[2], '0', '1')
  local dues = {}
  for i = 6, #ARGV, each do
    sized('op', ARGV[i], 6, 6)
    dues[i] = due_of(ARGV[i + 2])
  end

  -- stored returns the record of a task, which may lie at the old shard; nil: none.
  local function stored(record, i)
    local fallback = ARGV[i + 3]
    if record or fallback == '' or redis.call('SISMEMBER', KEYS[4], ARGV[i + 1]) == 1 then return record end
    return fallback
  end

  -- keep_plan notes when the run of a recurring task was due by the rule. A run that is
  -- leased may be in a queue already.
  local function keep_plan(id, r, was)
    local at = rule_at(r.body)
    if not at then return end
    local planned, runs = run_of(r.body, at)
    if planned == 0 then planned = was end
    r.body = with_run(r.body, at, planned == r.due and 0 or planned, runs)
    local score = not r.prior and tonumber(redis.call('ZSCORE', KEYS[1], id) or 0)
    r.redelivered = r.redelivered or score and score < 0 or false
  end

  -- refusal comes before the first write.
  local function refusal()
    if now > not_after then return {'late', now} end
    may('ZRANGEBYSCORE', KEYS[1], '', '')
    may('ZADD', KEYS[1], '', '')
    may('ZSCORE', KEYS[1], '')
    may('HSET', KEYS[2], '', '')
    may('SISMEMBER', KEYS[4], '')
    may('SADD', KEYS[4], '')
    may('SPUBLISH', KEYS[5], '')
    return other_term(KEYS[3], ARGV[4]) or fenced(KEYS[3], KEYS[4], ARGV[1])
  end

  local answer, head, first, read, ids, dues_of = {'ok'}, nil, math.huge, 0, {}, {}
  for i = 6, #ARGV, each do
    if read >= bytes then break end
    local op, id, result = ARGV[i], ARGV[i + 1], NONE
    local record = redis.call('HGET', KEYS[2], id)
    if record and string.sub(record, 14, 19) == op then
      result = struct.unpack('>I6', record, 2) -- the first execution of this call has moved it
    else
      if not head then
        local refused = refusal()
        if refused then return #answer > 1 and answer or refused end
        head = earliest(KEYS[1])
      end
      record = stored(record, i)
      local r = record and open(record)
      if record and not r then
        result = UNREADABLE
      elseif r then
        local at = dues[i] == now and out_now(id, record) and now + 1 or dues[i]
        local was = r.due
        result = change(r, at, i, record)
        if not result then
          keep_plan(id, r, was)
          r.prior, r.op, result = nil, op, r.due
          store(id, r, at, ARGV[2])
          first = math.min(first, at)
          ids[#ids + 1], dues_of[#ids + 1] = id, result
        end
      end
    end
    if record then read = read + #record end
    answer[#answer + 1] = result
  end
  add_events(KEYS[3], history_kept, 'm', ids, dues_of)
  if head and first < head then redis.call('SPUBLISH', KEYS[5], first) end
  return answer
end
