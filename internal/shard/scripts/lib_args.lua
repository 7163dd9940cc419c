-- Arguments are checked before the first write: a script that stopped halfway would
-- leave a record without a score, or with the score of another state.
local MOST_TASKS, MOST_MS, MOST_REASON = 1000, 2 ^ 48 - 1, 65520

local function refuse(what, got)
  got = string.gsub(string.sub(tostring(got), 1, 40), '[^\32-\126]', '?')
  error({err = 'ARGUMENT ' .. what .. '; got ' .. got})
end

-- expect checks how many keys and arguments there are: `fixed` ones, then `each` for
-- every task.
local function expect(keys, fixed, each)
  if #KEYS ~= keys then refuse(keys .. ' keys', #KEYS) end
  local tasks = (#ARGV - fixed) / (each or 1)
  if tasks < 0 or tasks ~= math.floor(tasks) or tasks > 0 and not each then refuse('number of arguments', #ARGV) end
  if tasks > MOST_TASKS then refuse('at most ' .. MOST_TASKS .. ' tasks', tasks) end
end

-- whole returns a whole number from low to high, by default from 0 to the latest ms
-- that a record holds.
local function whole(what, text, low, high)
  local n = tonumber(text)
  if not n or n ~= math.floor(n) or n < (low or 0) or n > (high or MOST_MS) then refuse(what, text) end
  return n
end

local function either(what, text, one, other)
  if text ~= one and text ~= other then refuse(what .. ': "' .. one .. '" or "' .. other .. '"', text) end
end

local function sized(what, text, low, high)
  if #text < low or high and #text > high then refuse('bytes of ' .. what, #text) end
end

-- leased_under checks that a token is the score of a lease.
local function leased_under(token)
  local n = tonumber(token)
  if not n or not (n < 0 and n > -math.huge) then refuse('token', token) end
end

-- placed checks a placement: "epoch shards previous phase".
local function placed(text)
  local epoch, shards, previous, phase = string.match(text, '^(%d+) (%d+) (%d+) (%l+)$')
  if not epoch or phase ~= 'stable' and phase ~= 'migrating' and phase ~= 'removed' then refuse('placement', text) end
  whole('epoch', epoch, 1)
  whole('shards', shards, 1, 4096)
  whole('previous shards', previous, 1, 4096)
end
