-- due_of reads a caller's due time: "+1500" is that many ms from now, "1796119200000"
-- is absolute; the past means now. It returns the ms, and the score for ZADD. That is
-- the caller's text if possible, which spares Redis from formatting a Lua number.
local function due_of(when)
  local ms, first = tonumber(when), string.byte(when)
  if not ms or ms % 1 ~= 0 or ms >= 2 ^ 48 or ms <= -2 ^ 48 then refuse('when', when) end
  local relative = first == 43 -- "+"
  if relative then ms = now + ms end
  if relative or ms <= now then
    ms = math.max(ms, now)
    return whole('due', ms), string.format('%d', ms)
  end
  -- from 1 to 9 first, a digit last: tonumber accepts blanks, and 0x for hexadecimal.
  -- No ZADD accepts blanks, and Valkey 9.1's refuses 0x.
  return ms, first > 48 and string.byte(when, -1) > 47 and when or ms
end
