#!lua flags=allow-oom
-- uses: args rights clock wake attention
-- Draws the next tickets of a topic, one after the other, and reads its placement. It
-- works in a full Redis too: stored tasks must be delivered, or there would never be
-- room again. A key without promises keeps who drew which tickets, so that of several
-- scanners that poll a shard only one claims. With the keys of all shards it also looks at
-- the tickets' shards.
-- KEYS  ticket, placement, drawn, then due of each shard, or none
-- ARGV  how many, instance, stay (ms: how long the tickets' shards are polled), looks (how
--       many shards' keys there are), after (ms), most (ms). If others poll shards of the topic, the
--       stay lasts until `after` the last of them leaves, but not longer than `most`.
-- Returns {the last ticket, placement; false if there is none, now (µs), until (ms: the end of the
--       stay), then for each ticket, if it looks: next (ms; -1: never), then first, count, until
--       (ms), first, count, until, ...}: what other scanners drew and still poll.
-- Executed twice: the tickets drawn first are skipped, and their shards are polled one
--       draw later.
expect(3 + whole('looks', ARGV[4], 0, 4096), 6)
local tickets, stay = whole('tickets', ARGV[1], 1, 4096), whole('stay', ARGV[3], 1, 3600000)
local after, most = whole('after', ARGV[5], 0, 3600000), whole('most', ARGV[6], 0, 3600000)
sized('instance', ARGV[2], 1, 255)
may('GET', KEYS[3])
may('SET', KEYS[3], '')
local placement, before = redis.call('HGET', KEYS[2], 'value'), redis.call('GET', KEYS[3])
local answer, latest = {0, placement, now_us, 0}, 0
if #KEYS > 3 then
  local first = 1 + tonumber(redis.call('GET', KEYS[1]) or 0)
  if first + tickets > 2 ^ 53 then refuse('looks at exact tickets', first) end
  for ticket = first, first + tickets - 1 do answer[#answer + 1] = attention(KEYS[4 + ticket % (#KEYS - 3)]) end
end
local last = redis.call('INCRBY', KEYS[1], tickets)
answer[1] = last
local drawn = {''}
for line in string.gmatch(before or '', '[^\n]+') do
  local first, count, from, stays, instance = string.match(line, '^(-?%d+) (%d+) (%d+) (%d+) (.+)$')
  local left = from and from + stays - now or 0
  if left > 0 and left <= tonumber(stays) and instance ~= ARGV[2] then
    drawn[#drawn + 1], latest = line, math.max(latest, left)
    answer[#answer + 1] = tonumber(first)
    answer[#answer + 1] = tonumber(count)
    answer[#answer + 1] = now + left
  end
end
if latest > 0 then stay = math.max(stay, math.min(latest + after, most)) end
answer[4] = now + stay
drawn[1] = string.format('%d %d %d %d %s', last - tickets + 1, tickets, now, stay, ARGV[2])
redis.call('SET', KEYS[3], table.concat(drawn, '\n'), 'PX', string.format('%d', math.max(latest, stay)))
return answer
