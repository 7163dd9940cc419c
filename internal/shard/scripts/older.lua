#!lua flags=allow-oom
-- uses: args history
-- Asks whether a stored task follows an older version than a delivery does. It then
-- belongs to a superseded chain.
-- KEYS  history
-- ARGV  due and scheduled (ms, of the delivery), due and scheduled (ms, of the stored
--       task)
-- Returns 1 or 0.
-- Executed twice: the same answer.
expect(1, 4)
for i, name in ipairs({'due', 'scheduled', 'stored due', 'stored scheduled'}) do whole(name, ARGV[i]) end
return chain_start_of(ARGV[3], ARGV[4]) < math.min(tonumber(ARGV[3]), chain_start_of(ARGV[1], ARGV[2])) and 1 or 0
