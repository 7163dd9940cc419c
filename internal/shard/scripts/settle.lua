#!lua flags=allow-oom
-- uses: args rights clock events left
-- Removes delivered or moved tasks, each only if it is still leased under the
-- token of its claim.
-- KEYS  due, task, fence
-- ARGV  event (1: the tasks were delivered; 0: they moved), then for each token: token,
--       count, id... (count of them)
-- Returns {how many were removed, 1: their versions are nowhere else (see lib_left), or 0}.
-- Executed twice: the second time removes nothing.
expect(3, #ARGV)
either('event', ARGV[1], '0', '1')
local ids, tokens, n, at = {nil}, {nil}, 0, 2
while at < #ARGV do
  local token, count = ARGV[at], whole('count', ARGV[at + 1], 1, #ARGV - at - 1)
  leased_under(token)
  for i = at + 2, at + 1 + count do
    n = n + 1
    ids[n], tokens[n] = ARGV[i], token
  end
  at = at + 2 + count
end
if at ~= #ARGV + 1 then refuse('number of arguments', #ARGV) end
if n > 1000 then refuse('at most 1000 tasks', n) end
local scores = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local held = {nil}
for i = 1, n do
  local score, token = scores[i], tokens[i]
  -- Redis 7.0 formats a score as claim does; other versions format it shorter
  if score and (score == token or tonumber(score) == tonumber(token)) then held[#held + 1] = ids[i] end
end
if #held == 0 then return {0, 0} end
may('HDEL', KEYS[2], '')
redis.call('ZREM', KEYS[1], unpack(held))
redis.call('HDEL', KEYS[2], unpack(held))
local kept, nowhere = left_of(KEYS[3])
if ARGV[1] == '1' then add_events(KEYS[3], kept, 'd', held) end
return {#held, nowhere}
