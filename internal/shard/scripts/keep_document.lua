#!lua flags=allow-oom
-- uses: args rights clock
-- Records the source of a topic's document, and saves the document of that source. It
-- works in a full Redis too: scanners serve a topic only after that. Of a file it also keeps the
-- last ten documents before this one. Consul keeps those itself.
-- KEYS  document, source, earlier
-- ARGV  the caller's source, the recorded source that it replaces ("" for none),
--       "1" to save the document, document
-- Returns the source recorded afterwards. If it isn't the caller's, nothing was done.
-- Executed twice: the same.
expect(3, 4)
sized('source', ARGV[1], 1)
either('save', ARGV[3], '0', '1')
may('SET', KEYS[1], '')
if ARGV[1] == 'file' then
  may('ZADD', KEYS[3], 0, '')
  may('ZCARD', KEYS[3])
  may('ZRANGE', KEYS[3], 0, 0)
  may('ZREM', KEYS[3], '')
end
local recorded = redis.call('GET', KEYS[2]) or ''
if recorded ~= ARGV[1] then
  if recorded ~= ARGV[2] then return recorded end
  redis.call('SET', KEYS[2], ARGV[1])
end
if ARGV[3] == '0' then return ARGV[1] end
local before = redis.call('GET', KEYS[1])
if ARGV[1] == 'file' and before and before ~= ARGV[4] then
  redis.call('ZADD', KEYS[3], now_us, before)
  local more = redis.call('ZCARD', KEYS[3]) - 10
  if more > 0 then redis.call('ZREM', KEYS[3], unpack(redis.call('ZRANGE', KEYS[3], 0, more - 1))) end
end
redis.call('SET', KEYS[1], ARGV[4])
return ARGV[1]
