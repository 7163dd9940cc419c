-- fenced comes first in a script that knows a placement ("epoch shards previous phase").
-- It returns nil to go on. If this shard has seen a newer placement, it returns the
-- caller's whole reply; also for another one of the same epoch, as after a failover that
-- lost one of them.
-- last_cancel is then the time of the shard's last cancel, in ms. A version that is put
-- after it is scheduled no earlier, also after the clock was set back: consumers compare
-- the two (see lib_history). history_kept is how long the shard keeps events (see lib_events).
local last_cancel, history_kept = 0, nil
local function fenced(fence, handled, placement)
  may('HSET', fence, '', '')
  may('HDEL', fence, '')
  may('UNLINK', handled)
  local known = redis.call('HMGET', fence, 'placement', 'cancelled', 'history')
  local seen = known[1]
  last_cancel, history_kept = tonumber(known[2] or 0), known[3]
  if seen == placement then return nil end
  placed(placement)
  if seen and tonumber(string.match(placement, '^%d+')) <= tonumber(string.match(seen, '^%d+')) then
    return {'moved', seen}
  end
  redis.call('UNLINK', handled) -- it may be large
  redis.call('HDEL', fence, 'pass', 'cursor', 'dirty', 'moved')
  redis.call('HSET', fence, 'placement', placement) -- last: it says that the rest is done
  return nil
end
