package scanner

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// asking makes admissions to one fleet, and has members live in it.
type asking struct {
	t     *testing.T
	store *shard.Store
	said  *journal
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	t.Cleanup(func() { _ = rdb.Close() })
	return &asking{t: t, store: storeOf(t, rdb, prefix), said: &journal{}}
}

func (a *asking) from(source string) *admission {
	return &admission{
		source: source, store: a.store, log: slog.New(slog.NewTextHandler(a.said, nil)), open: make(chan struct{}),
		fleet: func(ctx context.Context) ([]balance.Member, error) { return balance.Members(ctx, a.store) },
	}
}

// lives has a member say which source it works by, and returns what ends it.
func (a *asking) lives(instance, source string) (dies func()) {
	a.t.Helper()
	note, _ := json.Marshal(balance.Member{Instance: instance, Source: source})
	if _, err := a.store.Heartbeat(a.t.Context(), instance, time.Hour, time.Hour); err != nil {
		a.t.Fatal(err)
	}
	if err := a.store.Describe(a.t.Context(), instance, note); err != nil {
		a.t.Fatal(err)
	}
	return func() {
		if err := a.store.Leave(a.t.Context(), instance); err != nil {
			a.t.Fatal(err)
		}
	}
}

// is holds an admission to whether it lets its scanner work.
func (a *asking) is(admitted bool, one *admission) {
	a.t.Helper()
	if err := one.ask(a.t.Context()); (err == nil) != admitted || (one.why() == "") != admitted {
		a.t.Errorf("%s: %v, %q; want admitted %v", one.source, err, one.why(), admitted)
	}
}

// TestAFleetHasOneSource: the first scanner decides; files go over to Consul when none of
// theirs lives, and nothing goes over to files.
func TestAFleetHasOneSource(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	file, consul := a.from(FileSource), a.from(ConsulSource("duefleet"))
	a.is(true, file)
	a.is(true, a.from(FileSource))
	dies := a.lives("one", FileSource)
	a.is(false, consul)
	a.is(false, consul)
	if lines := a.said.of("scanner refused"); len(lines) != 1 || !strings.Contains(lines[0], "source=consul:duefleet fleet=file") {
		t.Errorf("logged %q", lines)
	}
	dies()
	a.lives("two", "") // an older version
	a.is(true, consul)
	a.is(true, a.from(ConsulSource("duefleet")))
	a.is(false, a.from(ConsulSource("other")))
	a.is(false, a.from(FileSource))
	a.is(false, file) // one that works already is told, and says so
	a.is(true, a.from(""))
}

// TestAStrayScannerChangesNothing: a scanner with a file in a fleet of Consul serves no topic,
// changes no shard count, isn't ready, and says why; once the fleet's source is its own it
// begins.
func TestAStrayScannerChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 8")}, nil)
	l.admission.source = FileSource
	if _, err := l.store.TakeSource(t.Context(), ConsulSource("duefleet"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := l.topic("orders").Ensure(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	l.ok(l.topic("orders").SaveDocument(t.Context(), []byte("shards: 3\n")))
	l.run()
	var s operate.Status
	wait.For(t, "status to tell of the stray", func() bool {
		var err error
		s, err = operate.ReadStatus(t.Context(), l.store, "")
		return err == nil && len(s.Fleet) == 1 && s.Fleet[0].Refused != ""
	})
	if reasons := s.Reasons(time.Now()); len(reasons) == 0 || !strings.Contains(reasons[len(reasons)-1].String()+reasons[0].String(), "takes its topics from file, and the fleet from consul:duefleet") {
		t.Errorf("reasons: %v", reasons)
	}
	if ready, why := l.configured(); ready || !strings.Contains(why, "consul:duefleet") {
		t.Errorf("ready %v: %s", ready, why)
	}
	if len(l.reloader.all()) > 0 || s.Fleet[0].Source != "" {
		t.Errorf("it serves %d topics, by %q", len(l.reloader.all()), s.Fleet[0].Source)
	}
	p, err := l.topic("orders").Placement(t.Context())
	l.ok(err)
	raw, err := l.topic("orders").Document(t.Context())
	l.ok(err)
	if p.Shards != 3 || p.Phase != shard.Stable || string(raw) != "shards: 3\n" {
		t.Errorf("placement %s, document %q", p, raw)
	}
	if _, err := l.store.TakeSource(t.Context(), FileSource, ConsulSource("duefleet")); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the scanner to begin", func() bool { v := l.served("orders"); ready, _ := l.configured(); return v != nil && ready })
}
