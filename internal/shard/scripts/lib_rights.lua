-- Rights are checked before the first write, as arguments are: a script stops at the
-- first command that its user may not run, and what it wrote before stays. So a missing
-- right shows at the first call, and not when the shard count changes.

-- allowed passes as many arguments as the command needs at least. Without them, Redis
-- 8.0 raises an error. A table of commands would cost more than the check.
local function allowed(command, key)
  if command == 'ZADD' or command == 'HSET' or command == 'ZRANGEBYSCORE' or command == 'ZREVRANGEBYSCORE'
    or command == 'ZCOUNT' or command == 'ZRANGE' or command == 'ZREMRANGEBYSCORE' or command == 'HINCRBY' then
    return redis.acl_check_cmd(command, key, '', '')
  end
  if command == 'GET' or command == 'PTTL' or command == 'HLEN' or command == 'HGETALL' or command == 'UNLINK'
    or command == 'ZCARD' then
    return redis.acl_check_cmd(command, key)
  end
  return redis.acl_check_cmd(command, key, '')
end

-- may stops a script if its user may not run all of these commands on a key, or
-- publish to a channel.
local function may(key, command, ...)
  if not allowed(command, key) then
    error({err = "NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command on " .. key})
  end
  if ... then may(key, ...) end
end
