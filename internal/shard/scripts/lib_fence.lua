-- FENCED, the first thing a script that knows a placement does.
-- placement: "epoch shards previous state". Returns nil to go on, or the
-- caller's whole reply if this shard has seen a newer placement, or another one
-- of the same epoch, as after a failover that lost one of them.
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
  redis.call('HSET', fence, 'placement', placement) -- last: it says that the rest was done
  return nil
end
