-- The events of a shard's tasks, for people who ask what happened to one. A shard keeps
-- them if the topic's setting history says so. A hash for each hour holds the events by ID,
-- and expires. Each event: 1 byte with the length of the rest, 1 byte kind, 6 bytes time and
-- 6 bytes due (Redis ms; 0: none), text.
-- Kinds: s scheduled, m moved, d delivered, c cancelled, t to be tried again, p parked,
-- r replayed, x purged. It uses lib_clock.

-- events_key returns the key of an hour.
local function events_key(events, hour) return events .. string.format('%d', hour) end

-- add_events adds an event for each of the IDs, and drops the oldest of an ID with more than
-- a KiB. kept is the fence's field history: how long in ms. dues and texts are by index; nil
-- stands for none. Events never stop a script: a user without the rights adds none.
local function add_events(fence, kept, kind, ids, dues, texts)
  kept = tonumber(kept or 0)
  if kept == 0 or #ids == 0 then return end
  local hour, most, most_text = 3600000, 1024, 200 -- ms, bytes
  local at_fence = string.find(fence, ':fence:{', 1, true)
  local events = string.sub(fence, 1, at_fence) .. 'events' .. string.sub(fence, at_fence + 6) .. ':'
  local key = events_key(events, math.floor(now / hour))
  if not redis.acl_check_cmd('PEXPIRE', key, '1') then return end
  local before = redis.pcall('HMGET', key, unpack(ids))
  local left = redis.pcall('PTTL', key)
  if before.err or type(left) == 'table' then return end
  local pairs_of, at = {}, {}
  for i, id in ipairs(ids) do
    local text = string.sub(texts and texts[i] or '', 1, most_text)
    local event = kind .. struct.pack('>I6I6', now, dues and dues[i] or 0) .. text
    local there = at[id] and pairs_of[at[id]] or before[i] or ''
    while #there > most do there = string.sub(there, string.byte(there) + 2) end
    if not at[id] then
      pairs_of[#pairs_of + 1] = id
      at[id] = #pairs_of + 1
    end
    pairs_of[at[id]] = there .. string.char(#event) .. event
  end
  redis.pcall('HSET', key, unpack(pairs_of))
  if left < kept then redis.pcall('PEXPIRE', key, string.format('%d', kept + hour)) end
end

-- history_of returns how long the shard keeps events, for scripts that read no fence.
local function history_of(fence)
  local kept = redis.pcall('HGET', fence, 'history')
  return type(kept) == 'string' and kept or nil
end
