#!lua flags=allow-oom
-- uses: args
-- Lets another mover continue with a shard, if the caller is its mover.
-- KEYS  mover
-- ARGV  claimant
-- Returns 1 if it was, else 0.
-- Executed twice: the second time the caller isn't the mover any more.
expect(1, 1)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
