-- left_of returns how long the shard keeps events, as history_of does, and 1 if no other shard can
-- have a version that was here, or 0. While the shard count changes, a mover may have brought it
-- to another shard, and so may a call that moved it in time. Both show the placement to the old
-- shard first.
local function left_of(fence)
  local known = redis.pcall('HMGET', fence, 'history', 'placement')
  if known.err then return nil, 0 end
  local placement = known[2]
  return known[1] or nil, placement and string.find(placement, ' stable$') and 1 or 0
end
