package router

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// sandbox is a topic of one test's own, under the placement it began with.
type sandbox struct {
	*shard.Topic
	rdb     redis.UniversalClient
	prefix  string
	scripts *luascript.Client
	routers *Routers
	t       *testing.T
	p       shard.Placement
}

func newSandbox(t *testing.T, shards int) *sandbox {
	t.Helper()
	return sandboxOf(t, fixture.New(t), shards)
}

func sandboxOf(t *testing.T, r *fixture.Redis, shards int) *sandbox {
	t.Helper()
	topic, p := r.Serve(t, shards)
	return &sandbox{Topic: topic, rdb: r.Client, prefix: r.Prefix, scripts: r.Store.Scripts(), routers: New(r.Store), t: t,
		p: p}
}

// Router is the router of the topic.
func (c *sandbox) Router(topic string) *Router { return c.routers.Topic(topic) }

// key is a key of a shard.
func (c *sandbox) key(kind string, at int) string {
	return fmt.Sprintf("%s:%s:{orders:%d}", c.prefix, kind, at)
}

// now returns Redis\'s time in ms.
func (c *sandbox) now() int64 { return servertest.RedisNow(c.t, c.rdb).UnixMilli() }

// deadline is so far away that no call is late, however slow the machine is.
func (c *sandbox) deadline() int64 { return c.now() + time.Hour.Milliseconds() }

func body(payload string) []byte { return shard.EncodeBody(&task.Task{Payload: []byte(payload)}) }

func entry(id string, when task.When) shard.Entry {
	return shard.Entry{ID: id, When: when, Body: body("payload of " + id)}
}

// tryPut stores entries in one shard under p.
func (c *sandbox) tryPut(p shard.Placement, b shard.Put) shard.PutResult {
	c.t.Helper()
	if b.Op == "" {
		b.Op = shard.NewOp()
	}
	return c.Put(c.t.Context(), p, c.deadline(), []shard.Put{b})[0]
}

// put stores tasks in shard 0, all due at when.
func (c *sandbox) put(when task.When, ids ...string) {
	c.t.Helper()
	b := shard.Put{}
	for _, id := range ids {
		b.Entries = append(b.Entries, entry(id, when))
	}
	check.OK(c.t, c.tryPut(c.p, b).Err)
}

// askAt claims from a shard.
func (c *sandbox) askAt(at int, claim shard.Claim) shard.Batch {
	c.t.Helper()
	b, err := c.Shard(at).Claim(c.t.Context(), claim)
	check.OK(c.t, err)
	return b
}

// claimIDs claims from shard 0 for a minute and ends the test unless it got exactly these
// tasks.
func (c *sandbox) claimIDs(want ...string) shard.Batch {
	c.t.Helper()
	for _, id := range want {
		c.reach(id)
	}
	b := c.askAt(0, shard.Claim{Claimant: "w", Request: string(shard.NewOp()), Limit: shard.MaxBatch, Lease: time.Minute})
	c.sameIDs(b, want...)
	return b
}

// reach waits for a task that is due in the next ms: it replaced one that was claimed.
func (c *sandbox) reach(id string) {
	c.t.Helper()
	due := int64(c.rdb.ZScore(c.t.Context(), c.key("due", 0), id).Val())
	if now := c.now(); due == now+1 {
		check.Until(c.t, "the next ms", func() bool { return c.now() >= due })
	}
}

func (c *sandbox) sameIDs(b shard.Batch, want ...string) {
	c.t.Helper()
	got := make([]string, len(b.Tasks))
	for i, t := range b.Tasks {
		got[i] = t.ID
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Fatalf("claimed %q, want %q", got, want)
	}
}

func leases(b shard.Batch) []shard.Lease {
	l := make([]shard.Lease, len(b.Tasks))
	for i, t := range b.Tasks {
		l[i] = shard.Lease{ID: t.ID, Token: t.Token}
	}
	return l
}

func (c *sandbox) release(r ...shard.Release) int {
	c.t.Helper()
	n, err := c.Shard(0).Release(c.t.Context(), r)
	check.OK(c.t, err)
	return n
}

// read returns a task of shard 0, which must be there.
func (c *sandbox) read(id string) shard.Stored {
	c.t.Helper()
	s, err := c.Shard(0).Read(c.t.Context(), c.p, id)
	check.OK(c.t, err)
	return s
}

// gone ends the test if a task is in shard 0, in the set or in the hash.
func (c *sandbox) gone(id string) {
	c.t.Helper()
	if _, err := c.Shard(0).Read(c.t.Context(), c.p, id); !errors.Is(err, task.ErrNotFound) {
		c.t.Fatalf("task %q is still there (%v)", id, err)
	}
	if err := c.rdb.ZScore(c.t.Context(), c.key("due", 0), id).Err(); !errors.Is(err, redis.Nil) {
		c.t.Fatalf("task %q has still a score (%v)", id, err)
	}
}

// delete removes a task of shard 0 in any state.
func (c *sandbox) delete(id string) {
	c.t.Helper()
	w := c.Withdraw(c.t.Context(), c.p, c.deadline(), []shard.Deletion{{Names: shard.Names{IDs: []string{id}}}})[0]
	check.OK(c.t, w.Err)
}

// begin changes the shard count and moves the sandbox on to the new placement.
func (c *sandbox) begin(shards int) {
	c.t.Helper()
	done, err := c.Begin(c.t.Context(), c.p, shards)
	check.OK(c.t, err)
	check.Equal(c.t, "the change began", done, true)
	c.p, err = c.Placement(c.t.Context())
	check.OK(c.t, err)
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
	return &guarded{sandboxOf(t, fixture.At(t, server.Addr(), "duefleet"), 4), server.Addr()}
}

// as is a client with the rights of a role.
func (g *guarded) as(role string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: g.addr, Username: "duefleet-" + role, Password: role})
	g.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
