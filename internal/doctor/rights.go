package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// tryScript runs commands on scratch keys. It returns the commands that the user may not
// run, each followed by Redis's error. KEYS are the scratch keys, one for each type. Each
// of ARGV is a command; @1 in it stands for the first key. Running the script twice has
// the effect of running it once, because the last command removes the keys.
const tryScript = `
local denied = {}
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do
    local n = string.match(word, '^@(%d+)$')
    words[#words + 1] = n and KEYS[tonumber(n)] or word
  end
  local reply = redis.pcall(unpack(words))
  -- Other refusals, for example for lack of memory, have nothing to do with rights.
  -- Redis 7.0 says "can't run", or "can't access" a key; later ones say "permission".
  local err = type(reply) == 'table' and reply.err
  if err and (string.find(err, "can't ") or string.find(err, 'permission')) then
    denied[#denied + 1] = words[1]
    denied[#denied + 1] = reply.err
  end
end
return denied`

// triedCommands returns the commands that scanners, their scripts and doctor run. Here
// they run only on scratch keys: @1 is a hash, @2 a sorted set, @3 a set, @4 a string, @5
// a channel.
func triedCommands() []string {
	return []string{
		"TIME", "INFO server", "PING",
		"HSET @1 f 1", "HGET @1 f", "HMGET @1 f", "HGETALL @1", "HINCRBY @1 f 1", "HDEL @1 f",
		"ZADD @2 1 m", "ZSCORE @2 m", "ZMSCORE @2 m", "ZCARD @2", "ZCOUNT @2 -inf +inf", "ZRANGE @2 0 -1",
		"ZRANGEBYSCORE @2 -inf +inf",
		"ZREVRANGEBYSCORE @2 +inf -inf", "ZRANDMEMBER @2", "ZSCAN @2 0", "ZREM @2 m", "ZREMRANGEBYSCORE @2 -inf +inf",
		"SADD @3 m", "SMEMBERS @3", "SMISMEMBER @3 m",
		"SET @4 1", "GET @4", "INCRBY @4 1",
		"SPUBLISH @5 doctor",
		"UNLINK @4", "DEL @1 @2 @3 @4",
	}
}

// onlyScanners returns the commands that scanners need and that deploy/redis/operator.acl
// doesn't allow. If a user lacks exactly these, it is an operator's user.
func onlyScanners() []string {
	return []string{"hincrby", "incrby", "set", "smismember", "ssubscribe", "zmscore", "zremrangebyscore"}
}

// examineRights tries every command that a scanner runs, on its own scratch keys.
func (p Target) examineRights(ctx context.Context, r *report, n node) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	user := p.redisUser()
	tag := "{doctor-" + rand.Text() + "}"
	var keys []string
	for _, kind := range []string{"hash", "zset", "set", "text"} {
		keys = append(keys, p.Settings.Redis.Prefix+":doctor:"+tag+":"+kind)
	}
	channel := p.Settings.Redis.Prefix + ":wake:" + tag
	keys = append(keys, channel)
	var args []any
	for _, c := range triedCommands() {
		args = append(args, c)
	}
	reply, err := p.redis.Eval(ctx, tryScript, keys, args...).StringSlice()
	if err != nil {
		r.failErr(ctx, err, "redis.rights", fixRights(n, user, p.Settings.Redis.Prefix, "eval"), "scripts on keys %s:*: %v",
			p.Settings.Redis.Prefix, err)
		return
	}
	var denied []string
	for pair := range slices.Chunk(reply, 2) {
		denied = append(denied, strings.ToLower(pair[0]))
	}
	denied = append(denied, p.tryOutside(ctx, channel)...)
	if slices.Equal(slices.Sorted(slices.Values(denied)), onlyScanners()) {
		r.info("redis.rights", "user %s has the rights of an operator, not of a scanner; to check the scanners' rights, "+
			"run doctor with their configuration", user)
		return
	}
	if len(denied) > 0 {
		last := ""
		if len(reply) > 1 {
			last = ": " + reply[1]
		}
		r.fail("redis.rights", fixRights(n, user, p.Settings.Redis.Prefix, denied...), "user %s may not run %s%s", user,
			strings.Join(denied, ", "), last)
		return
	}
	r.ok("redis.rights", "user %s may run all that scanners run, on keys %s:*", user, p.Settings.Redis.Prefix)
}

// tryOutside tries SSUBSCRIBE, which can't run in a script, and returns it if the user
// may not run it.
func (p Target) tryOutside(ctx context.Context, channel string) (denied []string) {
	sub := p.redis.SSubscribe(ctx, channel)
	defer sub.Close()
	if _, err := sub.Receive(ctx); redis.HasErrorPrefix(err, "NOPERM") {
		denied = append(denied, "ssubscribe")
	}
	return denied
}

func fixRights(n node, user, prefix string, commands ...string) string {
	return n.cli(fmt.Sprintf("ACL SETUSER %s '~%s:*' '&%s:wake:*' +%s", user, prefix, prefix,
		strings.Join(commands, " +")))
}
