package shard

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAScriptWithoutARightChangesNothing: if the user of a script lacks a right that it
// needs, the script is refused and writes no fence and no record.
func TestAScriptWithoutARightChangesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	elsewhere := []string{"allow_next-hscan", "delete-hget", "done-hmget", "done-hscan",
		"draw-zrevrangebyscore", "forget-del", "import-hget", "note-hget", "note-hmget", "older-hmget",
		"older-hset", "older-pexpire", "older-pttl", "put-hget", "put-sismember", "stop_move-del"}
	for _, name := range scriptNames(t) {
		for _, command := range commandsOf(t, name) {
			user := name + "-" + command
			t.Run(user, func(t *testing.T) {
				t.Parallel()
				c := sandboxOn(t, servertest.RedisOptions(server.Addr()), user, 1)
				c.fill()
				check.OK(c.t, c.rdb.Do(c.t.Context(), "ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all",
					"-"+command).Err())
				call, writes := acceptedCalls(c)[name]
				if !writes {
					return
				}
				before := c.everything()
				err := c.evalAs(user, name, call)
				switch {
				case err == nil && slices.Contains(elsewhere, user): // not on the way this call takes
				case err == nil:
					t.Error("want to be refused")
				case !refusal(err):
					t.Errorf("want to be refused, got %v", err)
				case !maps.Equal(before, c.everything()):
					t.Errorf("refused, and something was written: %v", err)
				}
			})
		}
	}
}

// refusal reports whether Redis refused something for a right, inside a script as 7.0
// and 8.0 put it, or outside.
func refusal(err error) bool {
	return err != nil && slices.ContainsFunc([]string{"NOPERM", "the script can't ", "ACL failure in script"},
		func(words string) bool {
			return strings.Contains(err.Error(), words)
		})
}

// commandsOf are the commands that a script may run.
func commandsOf(t *testing.T, script string) []string {
	t.Helper()
	return called(t, script, `redis\.call\('([A-Z]+)'`)
}

// called returns the commands that a script calls by a pattern, in lower case.
func called(t *testing.T, script, pattern string) []string {
	t.Helper()
	text, err := Script(script)
	check.OK(t, err)
	commands := map[string]bool{}
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		commands[strings.ToLower(found[1])] = true
	}
	return slices.Sorted(maps.Keys(commands))
}

// evalAs runs a script as another user.
func (c *sandbox) evalAs(user, script string, call accepted) error {
	options := *c.rdb.(*redis.Client).Options()
	options.Username, options.Password = user, "secret"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	text, err := Script(script)
	check.OK(c.t, err)
	return rdb.Eval(c.t.Context(), text, call.keys, call.args...).Err()
}
