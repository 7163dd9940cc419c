package reshard

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	shared "github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// fixture is a topic of one shard for one test, and its Resharder, which nothing makes reconcile.
type fixture struct {
	t         *testing.T
	topic     *shard.Topic
	resharder *Resharder
	p         shard.Placement
	rdb       redis.UniversalClient
	requests  atomic.Int64
	document  Document // in force
	desired   int      // what the source says
}

// silent is a Report that nobody reads.
type silent struct{}

func (silent) Works(context.Context, int, string)        {}
func (silent) Fails(context.Context, int, string, error) {}
func (silent) Placed(int)                                {}
func (silent) Tried(string, error) bool                  { return false }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	return fixtureOn(t, addr, prefix)
}

// fixtureOn is newFixture on the Redis at an address.
func fixtureOn(t *testing.T, addr, prefix string) *fixture {
	t.Helper()
	b := fixtureOf(t, shared.Client(t, addr), prefix)
	var err error
	b.p, err = b.topic.Ensure(t.Context(), 1)
	check.OK(t, err)
	return b
}

// unconnected returns a Resharder for tests of its parts. It connects to no server.
func unconnected(t *testing.T) *Resharder {
	t.Helper()
	return fixtureOf(t, redis.NewClient(&redis.Options{}), "duefleet").resharder
}

func fixtureOf(t *testing.T, rdb redis.UniversalClient, prefix string) *fixture {
	t.Helper()
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, prefix)
	check.OK(t, err)
	metrics := telemetry.DeclareForTopics[Metrics](&telemetry.Set{})
	b := &fixture{t: t, topic: store.Topic("orders"), rdb: rdb, document: Document{Shards: 1, Tick: time.Second}}
	one := func() int { return 1 }
	b.resharder = New(Config{
		Starts: semaphore.NewWeighted(1),
		Pace:   func() time.Duration { return Interval },
		Topic:  b.topic, Moving: b.topic, InForce: func() Document { return b.document },
		Desired: func(context.Context) (int, error) { return b.desired, nil }, Live: one, Workers: one,
		Request: func() string { return strconv.FormatInt(b.requests.Add(1), 10) }, Changed: &wake.Broadcast{},
		Step: NewStep(), Report: silent{}, Metrics: metrics("orders"),
		Log: slog.New(slog.DiscardHandler), Advice: func(string) string { return "" },
	})
	return b
}

// reconcile does what the chore does, at the topic's turn.
func (b *fixture) reconcile() {
	b.t.Helper()
	b.resharder.turn = true
	check.OK(b.t, b.resharder.reconcile(b.t.Context()))
}

// migrate begins a change to two shards.
func (b *fixture) migrate() {
	b.t.Helper()
	_, err := b.topic.Begin(b.t.Context(), b.p, 2)
	check.OK(b.t, err)
	b.p, err = b.topic.Placement(b.t.Context())
	check.OK(b.t, err)
}

// put stores tasks in shard 0, all due at when.
func (b *fixture) put(when task.When, ids ...string) {
	b.t.Helper()
	b.putBody(when, []byte{0}, ids...)
}

// putBody stores tasks that have the same body.
func (b *fixture) putBody(when task.When, body []byte, ids ...string) {
	b.t.Helper()
	shared.Put(b.t, b.topic, b.p, 0, shared.Entries(when, body, ids...)...)
}

// in reports whether a task is in a shard.
func (b *fixture) in(at int, id string) bool {
	b.t.Helper()
	_, err := b.topic.Shard(at).Read(b.t.Context(), b.p, id)
	return err == nil
}

// misplaced returns n IDs that lie in shard 0 and belong to another one.
func (b *fixture) misplaced(n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := strconv.Itoa(i); b.p.New(id) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
