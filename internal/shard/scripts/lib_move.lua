-- A move gives a stored task another due time. Its script has the keys due, task, fence,
-- handled and wake, and these arguments first: placement, op, not_after, id, when, moving,
-- fallback, term.
local op, id = ARGV[2], ARGV[4]

-- movable comes before the first write. It checks these arguments, the term and the
-- placement. It returns the task, the ms when it is to be due, and the record that it has
-- read; or nil and the script's whole reply.
local function movable()
  local not_after, due, fallback = whole('not_after', ARGV[3]), due_of(ARGV[5]), ARGV[7]
  sized('op', op, 6, 6)
  either('moving', ARGV[6], '0', '1')
  local record = redis.call('HGET', KEYS[2], id)
  if record and string.sub(record, 14, 19) == op then
    return nil, {'ok', struct.unpack('>I6', record, 2)}
  end
  if now > not_after then return nil, {'late', now} end
  may(KEYS[1], 'ZRANGEBYSCORE', 'ZADD', 'ZSCORE')
  may(KEYS[2], 'HSET')
  may(KEYS[4], 'SISMEMBER', 'SADD')
  may(KEYS[5], 'SPUBLISH')
  local refused = other_term(KEYS[3], ARGV[8]) or fenced(KEYS[3], KEYS[4], ARGV[1])
  if refused then return nil, refused end
  if not record then
    if fallback == '' or redis.call('SISMEMBER', KEYS[4], id) == 1 then return nil, {'none', now} end
    record = fallback
  end
  local r = open(record)
  if not r then
    return nil, redis.error_reply('UNREADABLE record: it is damaged, or of a newer format')
  end
  return r, due == now and out_now(id, record) and now + 1 or due, record
end
