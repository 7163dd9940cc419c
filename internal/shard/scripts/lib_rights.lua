-- Rights are checked before the first write, as arguments are: a script stops at the
-- first command that its user may not run, and what it wrote before stays. So a missing
-- right shows at the first call, and not when the shard count changes.

-- may stops a script if its user may not run a command on a key, or publish to a channel.
-- After the key come as many arguments as the command takes at least: without them, Redis
-- 8.0 raises an error. A list of commands for a key would cost more than their checks.
local function may(command, key, ...)
  if not redis.acl_check_cmd(command, key, ...) then
    error({err = "NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command on " .. key})
  end
end
