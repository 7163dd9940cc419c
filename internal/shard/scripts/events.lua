#!lua flags=no-writes
-- uses: clock events
-- Reads the events of one task in this shard.
-- KEYS  events, without the hour: "duefleet:events:{orders:3}:"
-- ARGV  id, hours (to look back, the present one included)
-- Returns the events as lib_events describes them, in order: one text.
-- Executed twice: the same, nothing is written.
local this, all = math.floor(now / 3600000), {}
for hour = this - ARGV[2] + 1, this do
  all[#all + 1] = redis.call('HGET', events_key(KEYS[1], hour), ARGV[1]) or ''
end
return table.concat(all)
