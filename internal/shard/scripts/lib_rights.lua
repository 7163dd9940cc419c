-- Rights are checked before the first write, as arguments are: a script stops at the
-- first command that its user may not run, and what it wrote before stays. So a missing
-- right shows at the first call, and not when the shard count changes.

-- after_key has the commands that don't take one argument after their key. Since Redis
-- 8.0, acl_check_cmd raises an error if an argument is missing.
local after_key = {
  GET = 0, HGETALL = 0, HLEN = 0, PTTL = 0, UNLINK = 0, ZCARD = 0,
  HINCRBY = 2, HSET = 2, ZADD = 2, ZCOUNT = 2, ZRANGE = 2, ZRANGEBYSCORE = 2, ZREMRANGEBYSCORE = 2,
  ZREVRANGEBYSCORE = 2,
}

local function allowed(command, key)
  local arguments = after_key[command] or 1
  if arguments == 0 then return redis.acl_check_cmd(command, key) end
  if arguments == 1 then return redis.acl_check_cmd(command, key, '') end
  return redis.acl_check_cmd(command, key, '', '')
end

-- may stops a script if its user may not run all of these commands on a key, or
-- publish to a channel.
local function may(key, command, ...)
  if not allowed(command, key) then
    error({err = "NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command on " .. key})
  end
  if ... then may(key, ...) end
end
