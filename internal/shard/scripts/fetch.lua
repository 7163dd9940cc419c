#!lua flags=no-writes
-- uses: args rights clock record part
-- Reads several tasks, as many as one reply is to hold.
-- KEYS  due, task, fence
-- ARGV  placement ("": that of the shard is not looked at), bytes (of records to read:
--       the reply ends behind the one that reaches it), part (of the records to return: 2
--       is all, 1 without payloads, 0 without content types and headers as well), id...
-- Returns {"ok", now (ms), then for each of the first IDs, and for one at least: score and
--       that part of its record, or nil where there is none, and how many bytes were left
--       out}; {"moved", placement} as read does.
-- Executed twice: the same, nothing is written.
expect(3, 3, 1)
local bytes, wanted = whole('bytes', ARGV[2], 1), whole('part', ARGV[3], 0, 2)
may(KEYS[1], 'ZSCORE')
may(KEYS[2], 'HGET')
if ARGV[1] ~= '' then
  placed(ARGV[1])
  local seen = redis.call('HGET', KEYS[3], 'placement')
  if seen and seen ~= ARGV[1] and tonumber(string.match(ARGV[1], '^%d+')) <= tonumber(string.match(seen, '^%d+')) then
    return {'moved', seen}
  end
end
local out, read = {'ok', now}, 0
for i = 4, #ARGV do
  if read >= bytes then break end
  local record = redis.call('HGET', KEYS[2], ARGV[i])
  local part = record and part_of(record, wanted)
  local score, left = redis.call('ZSCORE', KEYS[1], ARGV[i]), part and #record - #part or 0
  out[#out + 1], out[#out + 2], out[#out + 3] = score, part, left
  read = read + (record and #record or 0)
end
return out
