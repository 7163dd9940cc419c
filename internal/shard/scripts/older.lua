#!lua flags=allow-oom
-- uses: args past
-- Asks whether what is stored of a task follows a version that is older than a
-- delivery's: the next delivery of a chain that is over.
-- KEYS  past
-- ARGV  due and scheduled (ms, of the delivery), due and scheduled (ms, of what is
--       stored)
-- Returns 1 or 0.
-- Executed twice: the same answer.
expect(1, 4)
for i, name in ipairs({'due', 'scheduled', 'stored due', 'stored scheduled'}) do whole(name, ARGV[i]) end
return root_of(ARGV[3], ARGV[4]) < math.min(tonumber(ARGV[3]), root_of(ARGV[1], ARGV[2])) and 1 or 0
