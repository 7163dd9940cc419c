-- A due time from the caller: "+1500" is that many ms from now, "1796119200000"
-- is absolute; the past means now.
local function due_of(when)
  local ms = whole('when', when, -MOST_MS)
  if string.sub(when, 1, 1) == '+' then ms = now + ms end
  if ms < now then return now end
  return whole('due', ms)
end
