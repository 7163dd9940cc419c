#!lua flags=allow-oom
-- uses: args rights
-- Stores a scanner's note about itself, also while Redis is full.
-- KEYS  notes of the fleet
-- ARGV  instance, note
-- Returns 1.
-- Executed twice: the same.
expect(1, 2)
sized('instance', ARGV[1], 1)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
