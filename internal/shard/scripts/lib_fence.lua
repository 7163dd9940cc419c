-- fenced comes first in a script that knows a placement ("epoch shards previous phase").
-- It returns nil to go on. If this shard has seen a newer placement, it returns the
-- caller's whole reply; also for another one of the same epoch, as after a failover that
-- lost one of them.
local function fenced(fence, handled, placement)
  may(fence, 'HSET', 'HDEL')
  may(handled, 'UNLINK')
  local seen = redis.call('HGET', fence, 'placement')
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
