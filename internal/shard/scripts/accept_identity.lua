#!lua flags=allow-oom
-- uses: args
-- Replaces the identity of the data. It works in a full Redis too: nobody has to wait for
-- room to end the problem.
-- KEYS  identity
-- ARGV  the identity that is there ("" for none), the one that replaces it
-- Returns 1, or 0 if another one is there: then nothing was done.
-- Executed twice: the same.
expect(1, 2)
sized('identity', ARGV[2], 1)
local there = redis.call('GET', KEYS[1]) or ''
if there == ARGV[2] then return 1 end
if there ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
