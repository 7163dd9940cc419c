#!lua flags=allow-oom
-- uses: args
-- Draws the next ticket of a topic, and reads its placement. It does so in a Redis
-- that is full, too: what is stored must be delivered, else there would never be
-- room again.
-- KEYS  ticket, placement
-- Returns {ticket, placement; false if there is none}.
-- Executed twice: a ticket is skipped, and its shard is attended one draw later.
expect(2, 0)
local placement = redis.call('HGET', KEYS[2], 'value')
return {redis.call('INCR', KEYS[1]), placement}
