#!lua flags=allow-oom
-- uses: args
-- Draws the next tickets of a topic, one after the other, and reads its placement. It
-- works in a full Redis too: stored tasks must be delivered, or there would never be
-- room again.
-- KEYS  ticket, placement
-- ARGV  how many
-- Returns {the last ticket, placement; false if there is none}.
-- Executed twice: the tickets drawn first are skipped, and their shards are polled one
--       draw later.
expect(2, 1)
local tickets = whole('tickets', ARGV[1], 1, 4096)
local placement = redis.call('HGET', KEYS[2], 'value')
return {redis.call('INCRBY', KEYS[1], tickets), placement}
