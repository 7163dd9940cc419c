package producer

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

const orders = "orders"

// fleet takes the place of the scanners: it creates topics, moves tasks and claims.
type fleet struct {
	t      *testing.T
	addr   string
	rdb    redis.UniversalClient
	prefix string
	store  *shard.Store
	*shard.Topic
}

// newFleet serves the topic orders in the given number of shards.
func newFleet(t *testing.T, shards int) *fleet {
	t.Helper()
	r := fixture.New(t)
	topic, _ := r.Serve(t, shards)
	return &fleet{t, r.Addr, r.Client, r.Prefix, r.Store, topic}
}

// client returns a producer that knows no placement yet.
func (f *fleet) client() *Client {
	f.t.Helper()
	c, err := New(Config{Redis: f.rdb, Prefix: f.prefix})
	check.OK(f.t, err)
	return c
}

// informed returns a producer that has read the current placement.
func (f *fleet) informed() *Client {
	f.t.Helper()
	c := f.client()
	if _, err := c.Get(f.t.Context(), orders, "nothing"); !errors.Is(err, task.ErrNotFound) {
		f.t.Fatalf("get: %v", err)
	}
	return c
}

// now returns Redis\'s time in ms.
func (f *fleet) now() int64 { return servertest.RedisNow(f.t, f.rdb).UnixMilli() }

// is ends the test unless err matches a kind and contains the given words.
func is(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("error %q doesn't say %q", err, w)
		}
	}
}

func (f *fleet) placement() shard.Placement {
	f.t.Helper()
	p, err := f.Placement(f.t.Context())
	check.OK(f.t, err)
	return p
}

// begin changes the shard count; every shard has seen it afterwards.
func (f *fleet) begin(shards int) shard.Placement {
	f.t.Helper()
	done, err := f.Begin(f.t.Context(), f.placement(), shards)
	check.OK(f.t, err)
	check.Equal(f.t, "the change began", done, true)
	p := f.placement()
	for s := range p.Scanned() {
		_, err := f.Shard(s).Fence(f.t.Context(), p)
		check.OK(f.t, err)
	}
	return p
}

// move moves every misplaced task to its shard and completes the change.
func (f *fleet) move() {
	f.t.Helper()
	p := f.placement()
	for s := range p.Scanned() {
		for dirty := true; dirty; {
			dirty = false
			for id := range f.stored(s) {
				if to := p.New(id); to != s {
					dirty = true
					f.moveOne(p, s, to, id)
				}
			}
		}
	}
	done, err := f.Finish(f.t.Context(), p)
	check.OK(f.t, err)
	check.Equal(f.t, "the change ended", done, true)
}

func (f *fleet) moveOne(p shard.Placement, from, to int, id string) {
	f.t.Helper()
	export, err := f.Shard(from).Export(f.t.Context(), p, shard.Export{
		Claimant: "mover", Request: string(shard.NewOp()), Lease: time.Minute, IDs: []string{id},
	})
	check.OK(f.t, err)
	for _, exported := range export.Tasks {
		check.OK(f.t, f.Import(f.t.Context(), p, export.Deadline, shard.Share{Shard: to, Tasks: export.Tasks})[0].Err)
		_, err := f.Shard(from).RemoveExported(f.t.Context(), []shard.Lease{{ID: exported.ID, Token: export.Token}})
		check.OK(f.t, err)
	}
}

// stored lists the IDs of one shard.
func (f *fleet) stored(at int) map[string]bool {
	f.t.Helper()
	ids := map[string]bool{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		some, next, err := f.Shard(at).Scan(f.t.Context(), cursor, 500)
		check.OK(f.t, err)
		for _, id := range some {
			ids[id] = true
		}
		cursor = next
	}
	return ids
}

// inPlace ends the test unless exactly these tasks are stored, each once and in its own
// shard.
func (f *fleet) inPlace(want map[string]bool) {
	f.t.Helper()
	p := f.placement()
	seen := map[string]int{}
	for s := range p.Scanned() + 2 {
		for id := range f.stored(s) {
			seen[id]++
			if p.New(id) != s || !want[id] {
				f.t.Errorf("%q is in shard %d; it belongs to %d, or nowhere", id, s, p.New(id))
			}
		}
	}
	for id := range want {
		if seen[id] != 1 {
			f.t.Errorf("%q is stored %d times", id, seen[id])
		}
	}
}

// claimAll leases the due tasks in all shards.
func (f *fleet) claimAll() []shard.Claimed {
	f.t.Helper()
	var all []shard.Claimed
	for s := range f.placement().Scanned() {
		b, err := f.Shard(s).Claim(f.t.Context(), shard.Claim{
			Claimant: "w", Request: string(shard.NewOp()), Limit: shard.MaxBatch, Lease: time.Minute,
		})
		check.OK(f.t, err)
		all = append(all, b.Tasks...)
	}
	return all
}

// splitID returns the n-th ID that is moving under p.
func splitID(p shard.Placement, n int) string {
	for i := 0; ; i++ {
		id := "split-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		if p.Moving(id) {
			if n--; n < 0 {
				return id
			}
		}
	}
}

func request(id string, when When) Request {
	return Request{Topic: orders, ID: id, When: when, Payload: []byte("payload of " + id)}
}
