#!lua flags=no-writes
-- uses: args clock wake attention
-- Looks when shards need attention next, and leases nothing.
-- KEYS  due of each shard
-- Returns {now (µs), for each shard: next (ms; -1: never)}.
-- Executed twice: the same, nothing is written.
expect(#KEYS, 0)
local answer = {now_us}
for i, due in ipairs(KEYS) do answer[i + 1] = attention(due) end
return answer
