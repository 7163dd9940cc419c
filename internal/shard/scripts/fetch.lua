#!lua flags=no-writes
-- uses: args rights clock record part
-- Reads several tasks, up to the size limit of a reply.
-- KEYS  due, task, fence
-- ARGV  placement: "" means that the shard's placement isn't checked.
--       bytes: of records to read; the record that reaches the limit is the last.
--       part: of each record to return. 2: all; 1: without the payload; 0: without the
--       content type and headers too.
--       id...
-- Returns {"ok", now (ms), then for each of the first IDs, at least one: score, the part of
--       its record (each nil if there is none), and the number of bytes left out};
--       {"moved", placement} as read does.
-- Executed twice: the same reply; nothing is written.
expect(3, 3, 1)
local bytes, wanted = whole('bytes', ARGV[2], 1), whole('part', ARGV[3], 0, 2)
may('ZSCORE', KEYS[1], '')
may('HGET', KEYS[2], '')
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
