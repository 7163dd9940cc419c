-- Rights are checked before the first write, as arguments are: a script runs until
-- the call that its user may not make, and what it wrote before stays. So a right
-- that is missing shows at the first call, and not when the shard count changes.

-- may stops a script whose user may not run all of these commands on a key, or
-- publish to a channel.
local function may(key, command, ...)
  if not redis.acl_check_cmd(command, key) then
    error({err = "NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command on " .. key})
  end
  if ... then may(key, ...) end
end
