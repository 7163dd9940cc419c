-- An ID that is delivered for months has a delivery history that never expires. So
-- fields that no delivery needs any more are removed. One call reads about SOME fields
-- of a large hash, and the next call goes on where that one ended.
-- swept: the cursor (0: the pass is over), a space, the ms when the pass began.
local FEW, SOME, MOST = 64, 32, 512

-- some_fields returns fields with their values, and the cursor of the next ones. Redis
-- returns a small hash as a whole (hash-max-listpack-entries). For a user without HSCAN,
-- which older versions didn't need, only small hashes are pruned.
local function some_fields(cursor, fields)
  if redis.acl_check_cmd('HSCAN', history, '0') then
    local reply = redis.call('HSCAN', history, cursor, 'COUNT', SOME)
    return reply[2], reply[1]
  end
  return fields <= MOST and redis.call('HGETALL', history) or {}, '0'
end

-- outlived reports whether a field, r<due> or <due>, is of a delivery handled before
-- the window, or never handled and due before unfinished, a window of its own.
local function outlived(mark, due, value, window, unfinished)
  local late = tonumber(due) < now - unfinished
  if mark == 'r' then return late and not redis.call('HGET', history, due) end
  return value == '0' and late or value ~= '0' and tonumber(value) < now - window
end

-- prune removes fields that have outlived their window, but keeps the current delivery's.
-- It returns how many fields are left. A pass begins once a sixteenth of the window has
-- gone by since the last one began.
local function prune(window, unfinished)
  local fields = redis.call('HLEN', history)
  if fields <= FEW then return fields end
  local cursor, began = string.match(redis.call('HGET', history, 'swept') or '', '^(%d+) (%d+)$')
  began = tonumber(began)
  if not began or cursor == '0' then
    if began and began <= now and now < began + window / 16 then return fields end
    cursor, began = '0', now
  end
  local read, following = some_fields(cursor, fields)
  for i = 1, #read, 2 do
    local mark, due = string.match(read[i], '^(r?)(%d+)$')
    if due and due ~= ARGV[1] and outlived(mark, due, read[i + 1], window, unfinished) then
      redis.call('HDEL', history, due, 'r' .. due)
    end
  end
  redis.call('HSET', history, 'swept', following .. string.format(' %d', began))
  return redis.call('HLEN', history)
end
