-- What the scripts use and miniredis lacks. It takes the place of a script's first line.
-- Lines are joined, so that the lines of a script keep their numbers: comments stand alone.
redis.acl_check_cmd = function() return true end
math.huge = 1 / 0
local tonumber = (function(known)
  return function(text, base)
    if base then return known(text, base) end
    local n = known(text)
    if n or type(text) ~= 'string' then return n end
    local sign, word = string.match(text, '^%s*([+-]?)(%a+)%s*$')
    if word and string.lower(word) == 'inf' then return sign == '-' and -math.huge or math.huge end
    local mantissa, exponent = string.match(text, '^([^eE]+)[eE]([+-]?%d+)%s*$')
    mantissa = mantissa and known(mantissa)
    return mantissa and mantissa * 10 ^ known(exponent) or nil
  end
end)(tonumber)
local error = (function(raise)
  return function(e) raise(type(e) == 'table' and e.err or e, 0) end
end)(error)
string.byte = (function(byte)
  return function(text, from, to)
    from = from or 1
    return byte(text, from, to or from)
  end
end)(string.byte)
local struct = (function()
  local tokens = function(format)
    if string.sub(format, 1, 1) ~= '>' then error('struct: only big-endian formats') end
    return string.gmatch(format, '([%a])(%d*)')
  end
  local to_bytes = function(n, size)
    local all = {}
    for i = size, 1, -1 do
      all[i] = string.char(n % 256)
      n = math.floor(n / 256)
    end
    return table.concat(all)
  end
  local pack = function(format, ...)
    local out, args, at = {}, {...}, 0
    for kind, size in tokens(format) do
      at = at + 1
      if kind == 'B' or kind == 'I' then
        out[at] = to_bytes(args[at], tonumber(size) or 1)
      elseif kind == 'c' then
        out[at] = size == '0' and args[at] or string.sub(args[at], 1, tonumber(size))
      else
        error('struct: no format ' .. kind)
      end
    end
    return table.concat(out)
  end
  local unpack_ = function(format, data, at)
    local out, n = {}, 0
    at = at or 1
    for kind, size in tokens(format) do
      size = tonumber(size) or 1
      if kind == 'c' and size == 0 then
        size, n = out[n], n - 1
      end
      if at + size - 1 > #data then error('struct: data string too short') end
      n = n + 1
      if kind == 'c' then
        out[n] = string.sub(data, at, at + size - 1)
      elseif kind == 'B' or kind == 'I' then
        out[n] = 0
        for i = at, at + size - 1 do out[n] = out[n] * 256 + string.byte(data, i) end
      else
        error('struct: no format ' .. kind)
      end
      at = at + size
    end
    out[n + 1] = at
    return unpack(out, 1, n + 1)
  end
  return {pack = pack, unpack = unpack_}
end)()
