#!lua flags=allow-oom
-- uses: args
-- Records the source of a topic's document, and saves the document of that source. It
-- works in a full Redis too: scanners serve a topic only after that.
-- KEYS  document, source
-- ARGV  the caller's source, the recorded source that it replaces ("" for none),
--       "1" to save the document, document
-- Returns the source recorded afterwards. If it isn't the caller's, nothing was done.
-- Executed twice: the same.
expect(2, 4)
sized('source', ARGV[1], 1)
either('save', ARGV[3], '0', '1')
local recorded = redis.call('GET', KEYS[2]) or ''
if recorded ~= ARGV[1] then
  if recorded ~= ARGV[2] then return recorded end
  redis.call('SET', KEYS[2], ARGV[1])
end
if ARGV[3] == '1' then redis.call('SET', KEYS[1], ARGV[4]) end
return ARGV[1]
