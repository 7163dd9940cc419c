#!lua flags=allow-oom
-- uses: args clock
-- Grants a share of a topic's rate over the whole fleet, by the generic cell rate
-- algorithm (ITU-T I.371). The key holds the theoretical arrival time in µs. A grant
-- leaves it at most a burst ahead. A time further ahead is from before Redis's clock
-- was set back, or from a lower rate.
-- KEYS  rate
-- ARGV  rate (tasks a second), want (tasks; negative gives unused ones back),
--       burst (µs of tasks that may leave at once)
-- Returns {granted, wait (µs until one more task is available)}.
-- Executed twice: a lost grant is made up for within the burst.
expect(1, 3)
local interval = 1000000 / whole('rate', ARGV[1], 1)
local want, burst = whole('want', ARGV[2], 1 - 2 ^ 48), whole('burst', ARGV[3])
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now_us)
if want > 0 then at = math.min(at, now_us + burst + interval) end
local room = math.floor((now_us + burst - at) / interval)
local granted = math.min(want, math.max(room, 0))
at = at + granted * interval
redis.call('SET', KEYS[1], string.format('%.17g', at), 'PX', 60000)
if granted ~= 0 then return {granted, 0} end
return {0, math.max(math.ceil(at + interval - burst - now_us), 0)}
