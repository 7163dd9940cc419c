#!lua flags=allow-oom
-- uses: args
-- Removes what is kept of a removed topic besides its placement, which stays.
-- KEYS  placement, document, rate, source, earlier
-- ARGV  placement of the removed topic; "" if it never had one
-- Returns 1; 0 if the topic was created again, and then nothing is done.
-- Executed twice: the same.
expect(5, 1)
if (redis.call('HGET', KEYS[1], 'value') or '') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return 1
