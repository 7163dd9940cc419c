#!lua flags=no-writes
-- uses: args clock attention
-- Looks when a shard needs attention next, and leases nothing.
-- KEYS  due
-- Returns {now (µs), next (ms; -1: never)}.
-- Executed twice: the same, nothing is written.
expect(1, 0)
return {now_us, attention(KEYS[1])}
