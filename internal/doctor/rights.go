package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
)

// mayScript returns 1 for each of ARGV, a command with its arguments, that the user may
// run, otherwise 0. It runs none of them, so Redis notes no refusal in its ACL log. A
// server that can't tell counts as one that allows the command. Running the script twice
// has the effect of running it once.
const mayScript = `
local may = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  local told, allowed = pcall(redis.acl_check_cmd, unpack(words))
  may[i] = (not told or allowed) and 1 or 0
end
return may`

// denied returns the commands, without arguments, that the user may not run.
func denied(ctx context.Context, rdb redis.Scripter, commands ...string) (all []string, err error) {
	args := make([]any, len(commands))
	for i, c := range commands {
		args[i] = c
	}
	may, err := rdb.Eval(ctx, mayScript, nil, args...).Int64Slice()
	if err != nil {
		return nil, err
	}
	for i, c := range commands {
		name, _, _ := strings.Cut(strings.ToLower(c), " ")
		if may[i] == 0 && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// errNoRight means that doctor asked nothing, because the user may not ask.
var errNoRight = errors.New("no right to ask")

// setting returns a setting of the server. If the user may not run CONFIG GET, the error is
// errNoRight, and Redis notes no refusal.
func (n node) setting(ctx context.Context, name string) (string, error) {
	no, err := denied(ctx, n, "CONFIG GET "+name)
	if shard.Denied(err) || len(no) > 0 {
		return "", errNoRight
	}
	settings, err := n.ConfigGet(ctx, name).Result()
	return settings[name], err
}

// scannerCommands returns the commands that scanners, their scripts and doctor run, with
// arguments. No operator may write the fleet's key, whatever commands a user has.
func scannerCommands(prefix string) []string {
	return onKeys(prefix, []string{
		"TIME", "INFO server", "PING",
		"HSET HASH f 1", "HGET HASH f", "HMGET HASH f", "HGETALL HASH", "HINCRBY HASH f 1", "HDEL HASH f",
		"ZADD ZSET 1 m", "ZSCORE ZSET m", "ZMSCORE ZSET m", "ZCARD ZSET", "ZCOUNT ZSET -inf +inf", "ZRANGE ZSET 0 -1",
		"ZRANGEBYSCORE ZSET -inf +inf",
		"ZREVRANGEBYSCORE ZSET +inf -inf", "ZRANDMEMBER ZSET", "ZSCAN ZSET 0", "ZREM ZSET m",
		"ZREMRANGEBYSCORE ZSET -inf +inf",
		"SADD SET m", "SMEMBERS SET", "SISMEMBER SET m", "SMISMEMBER SET m",
		"SET TEXT 1", "GET TEXT", "INCRBY TEXT 1",
		"SPUBLISH CHANNEL doctor", "SSUBSCRIBE CHANNEL",
		"UNLINK TEXT", "DEL HASH ZSET SET TEXT", "ZADD FLEET 1 m",
	})
}

// listCommands returns the commands that list tasks. Scanners may not run all of them.
func listCommands(prefix string) []string {
	return onKeys(prefix, []string{"ZRANK ZSET m", "ZRANGE ZSET 0 -1", "ZCOUNT ZSET -inf +inf", "HMGET HASH f"})
}

// operatorCommands returns the commands that the operators' verbs and doctor run, with
// arguments.
func operatorCommands(prefix string) []string {
	return onKeys(prefix, []string{
		"TIME", "INFO server", "PING",
		"HSET HASH f 1", "HGET HASH f", "HMGET HASH f", "HGETALL HASH", "HDEL HASH f",
		"PTTL HASH", "PEXPIRE HASH 1",
		"ZADD ZSET 1 m", "ZSCORE ZSET m", "ZCARD ZSET", "ZCOUNT ZSET -inf +inf", "ZRANGE ZSET 0 -1", "ZRANK ZSET m",
		"ZRANGEBYSCORE ZSET -inf +inf",
		"ZREVRANGEBYSCORE ZSET +inf -inf", "ZRANDMEMBER ZSET", "ZSCAN ZSET 0", "ZREM ZSET m",
		"SADD TOPICS m", "SMEMBERS TOPICS", "SREM TOPICS m",
		"GET IDENTITY", "HSET DOCUMENT f 1", "HSET PLACEMENT f 1",
		"SPUBLISH CHANNEL doctor",
		"UNLINK ZSET", "DEL HASH", "ZRANGE FLEET 0 -1", "HGETALL FLEET:notes",
	})
}

// onKeys puts names of keys into commands: keys of a topic that isn't there, and the fleet's
// own keys.
func onKeys(prefix string, commands []string) (all []string) {
	const topic = "{doctor}"
	const first = "{doctor:0}"
	names := strings.NewReplacer(
		" HASH", " "+prefix+":task:"+first, " ZSET", " "+prefix+":due:"+first, " SET", " "+prefix+":handled:"+first,
		" TEXT", " "+prefix+":ticket:"+topic, " CHANNEL", " "+prefix+":wake:"+first, " FLEET", " "+prefix+":fleet",
		" TOPICS", " "+prefix+":topics", " IDENTITY", " "+prefix+":identity", " DOCUMENT", " "+prefix+":document:"+topic,
		" PLACEMENT", " "+prefix+":placement:"+topic)
	for _, c := range commands {
		all = append(all, names.Replace(c))
	}
	return all
}

// examineRights asks Redis which of the commands that scanners and operators run the user
// may run. It reports whether the user may list tasks, as an operator may.
func (p Target) examineRights(ctx context.Context, r *report, n node) (lists bool) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	user, prefix := p.redisUser(), p.Settings.Redis.Prefix
	work, err := denied(ctx, p.redis, scannerCommands(prefix)...)
	var operate []string
	if err == nil {
		operate, err = denied(ctx, p.redis, operatorCommands(prefix)...)
	}
	if err != nil {
		r.failErr(ctx, err, redisRights, fixRights(n, user, prefix, "eval"), "scripts on keys %s:*: %v", prefix, err)
		return true
	}
	operator := len(operate) < len(operatorCommands(prefix))/2
	fleet, err := denied(ctx, p.redis, onKeys(prefix, []string{"ZADD FLEET 1 m"})...)
	switch {
	case len(work) == 0:
		r.ok(redisRights, "user %s may run all that scanners run, on keys %s:*", user, prefix)
	case len(operate) == 0:
		r.info(redisRights, "user %s has the rights of an operator, not of a scanner; to check the scanners' rights, "+
			"run doctor with their configuration", user)
	case err == nil && len(fleet) > 0 && operator: // what it lacks concerns the caller, not the fleet
		r.warn(redisRights, n.cli("ACL SETUSER "+user+" +"+strings.Join(operate, " +"))+"; the keys are in "+
			"deploy/redis/operator.acl", "user %s has the rights of an operator, and may not run %s", user,
			strings.Join(operate, ", "))
	default:
		r.fail(redisRights, fixRights(n, user, prefix, work...), "user %s may not run %s on keys %s:*", user,
			strings.Join(work, ", "), prefix)
	}
	return p.mayList(ctx)
}

// mayList reports whether the user may list tasks. Without an answer it may.
func (p Target) mayList(ctx context.Context) bool {
	no, err := denied(ctx, p.Store.Client(ctx), listCommands(p.Settings.Redis.Prefix)...)
	return err != nil || len(no) == 0
}

func fixRights(n node, user, prefix string, commands ...string) string {
	return n.cli(fmt.Sprintf("ACL SETUSER %s '~%s:*' '&%s:wake:*' +%s", user, prefix, prefix,
		strings.Join(commands, " +")))
}
