#!lua flags=allow-oom
-- uses: args
-- Gives the data an identity, or replaces it. It works in a full Redis too: nobody has to
-- wait for room to end the problem.
-- KEYS  identity
-- ARGV  the identity that is there ("" for none), the one that replaces it
-- Returns 1, or 0 if another one is there: then nothing was done.
-- Executed twice: the same.
expect(1, 2)
sized('identity', ARGV[2], 1)
local there = redis.call('HGET', KEYS[1], 'value') or ''
if there == ARGV[2] then return 1 end
if there ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return 1
