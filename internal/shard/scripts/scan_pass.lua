#!lua flags=allow-oom
-- uses: args rights fence
-- Advances the pass that looks through a shard for misplaced tasks. A pass goes
-- through the whole shard with ZSCAN. Its progress is noted here, so that any worker
-- can continue. The fence refuses the old placement, so no misplaced task comes in.
-- A pass that met none, or saw all of them leave, therefore proves the shard clean.
-- A cursor is valid in one server process only, since each has its own hash seed. After
-- a restart of Redis the pass begins again.
-- KEYS  fence, handled
-- ARGV  placement, pass, from, to (cursors of ZSCAN), dirty (1: a misplaced task was
--       met and is still here)
-- Returns {"ok", pass, cursor, clean (1 or 0)}: where to go on; {"moved", placement}.
-- Executed twice: only the first advances, since a step must begin where the pass is;
--       the second answers with where it is.
expect(2, 5)
for i = 3, 4 do
  if not string.match(ARGV[i], '^%d+$') then refuse('cursor', ARGV[i]) end
end
either('dirty', ARGV[5], '0', '1')
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
may('HMGET', KEYS[1], '')
local moved = fenced(KEYS[1], KEYS[2], ARGV[1])
if moved then return moved end
local at = redis.call('HMGET', KEYS[1], 'pass', 'cursor', 'dirty')
local pass, cursor, dirty = at[1], at[2], at[3]
if not pass or string.sub(pass, 1, #server) ~= server then
  pass, cursor, dirty = server .. '-1', '0', '0'
  redis.call('HSET', KEYS[1], 'pass', pass, 'cursor', cursor, 'dirty', dirty)
end
local clean = 0
if ARGV[2] == pass and ARGV[3] == cursor then
  cursor = ARGV[4]
  if ARGV[5] == '1' then dirty = '1' end
  if cursor == '0' then
    if dirty == '0' then clean = 1 end
    pass, dirty = string.format('%s-%d', server, string.sub(pass, #server + 2) + 1), '0'
  end
  redis.call('HSET', KEYS[1], 'pass', pass, 'cursor', cursor, 'dirty', dirty)
end
return {'ok', pass, cursor, clean}
