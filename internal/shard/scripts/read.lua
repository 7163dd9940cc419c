#!lua flags=no-writes
-- Reads one task.
-- KEYS  due, task, fence
-- ARGV  placement, id
-- Returns {"ok", score, record}; {"none"}; {"moved", placement}: this shard has seen
--       a newer placement, or another one of the same epoch, and the task may have
--       moved.
-- Executed twice: the same, nothing is written.
local seen = redis.call('HGET', KEYS[3], 'placement')
if seen and seen ~= ARGV[1] and tonumber(string.match(ARGV[1], '^%d+')) <= tonumber(string.match(seen, '^%d+')) then
  return {'moved', seen}
end
local record = redis.call('HGET', KEYS[2], ARGV[2])
if not record then return {'none'} end
return {'ok', redis.call('ZSCORE', KEYS[1], ARGV[2]), record}
