package scanner

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// bench is a topic of one shard, of one test's own, that no worker serves but the test's.
type bench struct {
	*topic
	t      *testing.T
	p      shard.Placement
	rdb    redis.UniversalClient
	prefix string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	options := servertest.RedisOptions(addr)
	options.DialTimeout, options.ReadTimeout = wait.Hang, wait.Hang
	rdb := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	settings := config.Defaults()
	settings.Redis.Prefix = prefix
	s, err := New(Config{Settings: &settings, Redis: rdb, Instance: "me", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{topic: s.newTopic("orders", config.DefaultTopic("orders")), t: t, rdb: rdb, prefix: prefix}
	if b.p, err = b.store.Ensure(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return b
}

// migrate begins a change to two shards.
func (b *bench) migrate() {
	b.t.Helper()
	if _, err := b.store.Begin(b.t.Context(), b.p, 2); err != nil {
		b.t.Fatal(err)
	}
	var err error
	if b.p, err = b.store.Placement(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// put stores tasks in shard 0, all due at when.
func (b *bench) put(when shard.When, ids ...string) {
	b.t.Helper()
	now, err := b.store.Now(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	put := shard.Put{Op: shard.NewOp()}
	for _, id := range ids {
		put.Entries = append(put.Entries, shard.Entry{ID: id, When: when, Body: []byte{0}})
	}
	if r := b.store.Put(b.t.Context(), b.p, now+time.Hour.Milliseconds(), []shard.Put{put})[0]; r.Err != nil {
		b.t.Fatal(r.Err)
	}
}

// in reports whether a task is in a shard.
func (b *bench) in(at int, id string) bool {
	b.t.Helper()
	_, err := b.store.Shard(at).Read(b.t.Context(), b.p, id)
	return err == nil
}

// misplaced is n IDs that lie in shard 0 and belong to another.
func (b *bench) misplaced(n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := strconv.Itoa(i); b.p.New(id) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// A topic that needs fewer workers for a while hires one of the same name again,
// while what the first one claimed is still in flight.
func TestAWorkerHiredAgainClaimsNothingThatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	claimed := map[string]int{}
	for _, id := range []string{"a", "b"} {
		b.put(shard.In(0), id)
		w := b.worker(0)
		batch, err := w.insist(t.Context(), 0, w.newClaim(10, time.Hour), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range batch.Tasks {
			claimed[c.ID]++
		}
	}
	if claimed["a"] != 1 || claimed["b"] != 1 {
		t.Errorf("claimed %v, want each task once", claimed)
	}
}

// So does its mover.
func TestAMoverHiredAgainIsExportedWhatItAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.migrate()
	ids := b.misplaced(2)
	b.put(shard.In(time.Hour), ids...)
	for _, id := range ids {
		m := b.worker(0).mover(0, b.p)
		export, err := b.store.Shard(0).Export(t.Context(), b.p, m.newExport([]string{id}))
		if err != nil {
			t.Fatal(err)
		}
		if len(export.Tasks) != 1 || export.Tasks[0].ID != id {
			t.Errorf("asked for %s, and exported %v", id, export.Tasks)
		}
	}
}

// Whatever an export brings: the shard is clean of what was asked for only if that
// is gone.
func TestAnExportOfOthersDoesNotMakeAShardClean(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.migrate()
	ids := b.misplaced(2)
	b.put(shard.In(time.Hour), ids...)
	m := b.worker(0).mover(0, b.p)
	exported, asked := m.newExport(ids[:1]), ids[1]
	if _, err := b.store.Shard(0).Export(t.Context(), b.p, exported); err != nil {
		t.Fatal(err)
	}
	b.requests.Add(^uint64(0)) // the next export is asked for under the same number
	dirty, err := m.carry(t.Context(), []string{asked})
	if !dirty && b.in(0, asked) {
		t.Errorf("clean of %s, which is there still (%v)", asked, err)
	}
}

// A scan may meet a task twice.
func TestATaskThatIsMetTwiceIsMovedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.migrate()
	id := b.misplaced(1)[0]
	m := b.worker(0).mover(0, b.p)
	wait.For(t, "an export that is not late", func() bool {
		b.put(shard.In(time.Hour), id)
		dirty, err := m.carry(t.Context(), []string{id, id})
		return err == nil && !dirty
	})
	if b.in(0, id) || !b.in(1, id) {
		t.Error("the task is not where it belongs, and there alone")
	}
}
