package shard

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// role is one kind of user of Redis, for prefix duefleet. It has the scripts and other
// commands that it sends, and the keys that it may touch.
type role struct {
	name     string
	scripts  []string
	commands []string
	keys     []string
}

// roles returns the roles of the files in deploy/redis. A producer and a consumer may touch
// only the shards of topic orders, and read its placement.
func roles() []role {
	always := []string{"hello", "time", "eval", "evalsha", "hget"}
	orders := []string{
		"~duefleet:due:{orders:*}", "~duefleet:task:{orders:*}", "~duefleet:fence:{orders:*}", "~duefleet:handled:{orders:*}",
		"~duefleet:wake:{orders:*}",
		"~duefleet:history:{orders:*}", "~duefleet:events:{orders:*}:*", "~duefleet:group:{orders:*}",
		"%R~duefleet:placement:{orders}", "resetchannels", "&duefleet:wake:{orders:*}",
	}
	return []role{
		{
			name: "scanner",
			scripts: []string{
				"import", "claim", "draw", "heartbeat", "describe", "export", "scan_pass", "mark_clean", "attention",
				"cas_placement", "rate",
				"release", "settle", "advance", "requeue", "older", "delete", "stats", "fence", "stop_move", "keep_document",
				"begin_term", "raise_term", "accept_identity",
			},
			// The last four are for scanner doctor; info also tells whether Redis keeps what it
			// acknowledges.
			commands: slices.Concat(always, []string{"ssubscribe", "smembers", "sadd", "hmget", "hset", "hdel", "get", "set",
				"zrem", "zcard", "exists", "zscan", "zrandmember",
				"info", "ping", "zrange", "hgetall"}),
			keys: []string{"~duefleet:*", "resetchannels", "&duefleet:wake:*"},
		},
		{
			name:     "producer",
			scripts:  []string{"put", "delete", "reschedule", "fence", "read", "note", "list", "fetch", "events"},
			commands: slices.Concat(always, []string{"zscan", "smembers", "hgetall", "zadd", "zrem", "zrange"}),
			keys:     slices.Insert(slices.Clone(orders), 9, "%R~duefleet:topics"),
		},
		{
			name:     "consumer",
			scripts:  []string{"check_delivery", "allow_next", "requeue", "older", "done", "fence", "delete"},
			commands: slices.Concat(always, []string{"zadd", "zrem"}), keys: orders,
		},
		{
			name: "operator",
			scripts: []string{"stats", "list", "replay", "purge", "cas_placement", "fence", "clear", "forget", "delete", "note",
				"retime", "audit", "accept_identity", "events", "begin_term", "raise_term"},
			// ping and info are for scanner doctor.
			commands: slices.Concat(always, []string{"get", "smembers", "sadd", "srem", "hmget", "hgetall", "hset", "hdel",
				"zcard", "exists", "zrange",
				"zrangebyscore", "zrandmember", "zrevrangebyscore", "zscore",
				"zscan", "ping", "info"}),
			keys: []string{
				"~duefleet:due:*", "~duefleet:task:*", "~duefleet:fence:*", "~duefleet:handled:*", "~duefleet:wake:*",
				"~duefleet:history:*", "~duefleet:events:*", "~duefleet:group:*", "~duefleet:placement:*",
				"~duefleet:document:*", "~duefleet:rate:*", "~duefleet:topics", "~duefleet:identity",
				"~duefleet:holds", "~duefleet:audit", "%R~duefleet:fleet",
				"%R~duefleet:fleet:notes", "resetchannels", "&duefleet:wake:*",
			},
		},
	}
}

// line is the role's line of an ACL file.
func (r role) line(t *testing.T) string {
	t.Helper()
	commands := slices.Clone(r.commands)
	for _, script := range r.scripts {
		commands = append(commands, called(t, script, `redis\.p?call\('([A-Z]+)'`)...)
	}
	slices.Sort(commands)
	words := append([]string{"user", "duefleet-" + r.name, "reset", "on", ">PASSWORD"}, r.keys...)
	for _, command := range slices.Compact(commands) {
		words = append(words, "+"+command)
	}
	return strings.Join(words, " ") + "\n"
}

// TestTheRightsInDeployAreThoseThatAreNeeded: the ACL files list the commands of each
// role's scripts and its other commands. Each script has a role.
func TestTheRightsInDeployAreThoseThatAreNeeded(t *testing.T) {
	t.Parallel()
	var sent []string
	for _, r := range roles() {
		sent = append(sent, r.scripts...)
		path := filepath.Join("..", "..", "deploy", "redis", r.name+".acl")
		check.Golden(t, path, r.line(t), "go test ./internal/shard -run "+t.Name()+" -update")
	}
	slices.Sort(sent)
	if names := scriptNames(t); !slices.Equal(slices.Compact(sent), names) {
		t.Errorf("the roles send %q, of the scripts %q", sent, names)
	}
}

// TestRedisLoadsTheRightsInDeploy: together the files are an ACL file for Redis, and
// who has the password of a role has that role.
func TestRedisLoadsTheRightsInDeploy(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, r := range roles() {
		rdb := g.as(r.name, 0)
		if err := rdb.Time(t.Context()).Err(); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if err := rdb.Ping(t.Context()).Err(); (err == nil) != (r.name == "scanner" || r.name == "operator") {
			t.Errorf("%s: ping: %v", r.name, err)
		}
	}
}

// TestAProducerWritesNothingButItsTopic: with the rights in deploy/redis neither a
// producer nor a consumer can rewrite placement, document and fleet, or another
// topic's shards.
func TestAProducerWritesNothingButItsTopic(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	before := g.everything()
	for _, name := range []string{"producer", "consumer"} {
		rdb := g.as(name, 0)
		store, err := New(rdb, "duefleet")
		check.OK(g.t, err)
		orders, bills := store.Topic("orders"), store.Topic("bills")
		p, err := orders.Placement(t.Context())
		check.OK(g.t, err)
		check.Equal(t, "placement", p, g.p)
		more := Placement{p.Epoch + 1, 8, 4, Migrating}
		_, changed := orders.change(t.Context(), p, more)
		_, cleaned := orders.MarkClean(t.Context(), p, 0)
		_, drawn := orders.Draw(t.Context(), Draw{Instance: "here", N: 1})
		_, _, granted := store.Registry().Grant(t.Context(), "orders", 1, 1, 0)
		_, fenced := bills.Shard(0).Fence(t.Context(), p)
		_, described := store.Registry().Describe(t.Context(), "nobody", []byte("{}"))
		_, beat := store.Registry().Heartbeat(t.Context(), "nobody", time.Minute, time.Hour)
		for what, err := range map[string]error{
			"change the placement": changed, "mark a shard clean": cleaned, "draw a ticket": drawn, "take of the rate": granted,
			"save a document":    store.Registry().SaveDocument(t.Context(), "orders", []byte("{}")),
			"list a topic":       store.Registry().AddTopic(t.Context(), "orders"),
			"live":               beat,
			"describe a scanner": described, "fence another topic": fenced,
			"write the placement": rdb.Eval(t.Context(), "return redis.call('HSET', KEYS[1], 'value', '9 4096 4096 stable')",
				[]string{g.placementKey()}).Err(),
			"write it unnamed": rdb.Eval(t.Context(),
				"return redis.call('HSET', '"+g.placementKey()+"', 'value', '9 4096 4096 stable')", nil).Err(),
		} {
			if !refusal(err) {
				t.Errorf("%s: want it to be refused to %s, got %v", name, what, err)
			}
		}
	}
	after := g.everything()
	for key, held := range after {
		if before[key] != held {
			t.Errorf("%s has changed", key)
		}
	}
}

// TestAnotherDatabaseTakesOneRightMore: with +select, and not without, a producer
// works with a database other than 0.
func TestAnotherDatabaseTakesOneRightMore(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	call := func() error { return g.as("producer", 1).Time(t.Context()).Err() }
	if err := call(); err == nil || !strings.Contains(err.Error(), "'select'") {
		t.Errorf("without the right: got %v", err)
	}
	check.OK(g.t, g.rdb.Do(t.Context(), "ACL", "SETUSER", "duefleet-producer", "+select").Err())
	check.OK(g.t, call())
}

// guarded is a sandbox with a topic of 4 shards. Its Redis has the users of deploy/redis.
// The password of each is its name.
type guarded struct {
	*sandbox
	addr string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	server := servertest.RedisWithUsers(t, filepath.Join("..", "..", "deploy", "redis"))
	return &guarded{sandboxOn(t, servertest.RedisOptions(server.Addr()), "duefleet", 4), server.Addr()}
}

// as is a client with the rights of a role.
func (g *guarded) as(name string, db int) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: g.addr, Username: "duefleet-" + name, Password: name, DB: db})
	g.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
