package e2e_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

// The load of TestShardsUnderLoad. The race detector costs several times the
// processor that the load does; with it the same steps are run with a tenth, and
// beside other tests, so that lateness says nothing.
const (
	reshardPending = 200_000
	reshardRate    = 2000 // new tasks a second
	reshardRace    = 10
	reshardLease   = 10 * time.Second
	reshardCalm    = 30 * time.Second // before each change
	// reshardSettle, before that, is not measured: it outlasts the leases of the
	// scanner killed in the change before.
	reshardSettle = reshardLease + 2*time.Second
	// reshardPatience is for one change, on a machine that does other things.
	reshardPatience = 8 * time.Minute
)

// TestShardsUnderLoad: M goes 4, 16, 3, 8 through Consul under load, while two
// producers schedule, cancel, move and replace tasks: one that keeps the placement
// it once read until a shard refuses it, and one that reads it anew every time. In
// each change a scanner is killed. Nothing is lost, early, stranded or undead;
// what arrives twice was in flight at a kill. Tasks stay as punctual as just
// before, up to a factor of three.
func TestShardsUnderLoad(t *testing.T) {
	stacktest.Need(t, "consul")
	pending, rate := reshardPending, reshardRate
	if raceEnabled {
		pending, rate = pending/reshardRace, rate/reshardRace
	}
	if !raceEnabled {
		// The heap of this test, which remembers every task, keeps both cores of a
		// small machine busy for up to a second whenever it is collected, and with it
		// the consumer that takes the time.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 30))
	}
	w := newConsulWish(t)
	lateness := &stopwatch{}
	w.tap = lateness.note
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"lease": reshardLease.String(), "window": 500}))
	w.start(4)
	w.consume("orders.due")
	far := orders("orders", "far", pending, time.Now().Add(time.Hour), time.Hour, 200)
	w.schedule(far...)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running errgroup.Group
	loads := []*load{
		{prefix: "n-old", rate: rate / 2, far: far[:pending/2], client: w.oldClient},
		{prefix: "n-new", rate: rate / 2, far: far[pending/2:], client: w.newClient},
	}
	for _, l := range loads {
		running.Go(func() error { return l.run(ctx, w) })
	}

	for i, m := range []int{16, 3, 8} {
		lateness.begin(fmt.Sprintf("settling before the change to %d shards", m))
		w.stays(reshardSettle, func() bool { return true })
		lateness.begin(fmt.Sprintf("%s %d shards", stretchBefore, m))
		w.stays(reshardCalm, func() bool { return true })
		lateness.begin(fmt.Sprintf("%s %d shards", stretchChanging, m))
		w.set("orders", fleet.Topic{"shards": m})
		w.killDuring(i, m)
	}
	lateness.begin("after")
	stop()
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, l := range loads {
		w.hasten(l.far)
	}
	r := w.finish()
	t.Logf("%d promised, %d delivered, %d arrived twice, %d marked as redelivered", r.Promised, r.Delivered, r.Duplicated, r.Redelivered)
	w.checkRepeats()
	if most := 3 * 500; r.Duplicated > most {
		t.Errorf("%d duplicates, want at most the %d that were in flight at the kills", r.Duplicated, most)
	}
	r.Duplicated = 0
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	lateness.check(t)
}

// killDuring waits until the change to m shards is under way, kills a scanner,
// starts it again, and waits for the end of the change.
func (w *wish) killDuring(victim, m int) {
	w.t.Helper()
	w.migrating(m)
	began := time.Now()
	if err := w.scanners[victim].Kill(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.scanners[victim].Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	if !w.within(reshardPatience, func() bool {
		p := w.placement() // cheap, as it is asked all the time: scanner status is not
		return p.Shards == m && p.Phase == shard.Stable
	}) {
		w.t.Fatalf("still changing to %d shards after %s: %+v", m, reshardPatience, w.status().Topic("orders"))
	}
	w.t.Logf("%d shards after %s", m, time.Since(began).Round(100*time.Millisecond))
}

// within tells whether the condition comes true within d.
func (w *world) within(d time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	return fleet.Await(ctx, condition) == nil
}

// oldClient keeps the placement it has read.
func (w *wish) oldClient() fleet.Recorder { return w.recorder }

// newClient knows nothing yet.
func (w *wish) newClient() fleet.Recorder {
	client, err := producer.New(producer.Config{Redis: w.redis, Prefix: w.settings.RedisPrefix})
	if err != nil {
		panic(err) // the same configuration made the first one
	}
	return fleet.Recorder{Client: client, Ledger: w.recorder.Ledger}
}

// load schedules rate tasks a second, due within a second, and changes one task
// of the far future at every beat: cancels it, moves it near, or replaces it.
type load struct {
	prefix string
	rate   int
	far    []fleet.Order // those not changed yet
	client func() fleet.Recorder
}

func (l *load) run(ctx context.Context, w *wish) error {
	const beat = 50 * time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	n := l.rate * int(beat/time.Millisecond) / 1000
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		r := l.client()
		batch := orders("orders", fmt.Sprintf("%s-%d", l.prefix, i), n, time.Now().Add(200*time.Millisecond), 800*time.Millisecond, 200)
		if err := r.Schedule(w.t.Context(), batch...); err != nil {
			return err
		}
		if len(l.far) > 0 {
			if err := w.touch(r, i, l.far[0]); err != nil {
				return err
			}
			l.far = l.far[1:]
		}
	}
}

func (w *wish) touch(r fleet.Recorder, i int, o fleet.Order) error {
	k, soon := fleet.Key{Topic: o.Topic, ID: o.ID}, time.Now().Add(time.Second)
	switch i % 3 {
	case 0:
		return r.Cancel(w.t.Context(), k)
	case 1:
		return r.Reschedule(w.t.Context(), k, soon)
	}
	o.Due, o.Payload = soon.Truncate(time.Millisecond), []byte("newer")
	return r.Schedule(w.t.Context(), o)
}

// hasten makes the tasks that still wait for the far future due soon, each by
// its ID, wherever the changes have put it.
func (w *wish) hasten(far []fleet.Order) {
	w.t.Helper()
	const callers = 16
	began := time.Now()
	var g errgroup.Group
	for c := range callers {
		g.Go(func() error {
			for i := c; i < len(far); i += callers {
				k := fleet.Key{Topic: far[i].Topic, ID: far[i].ID}
				if err := w.recorder.Reschedule(w.t.Context(), k, time.Now().Add(time.Second)); err != nil {
					return fmt.Errorf("%s: %w", k.ID, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("%d tasks found by their IDs and made due within %s", len(far), time.Since(began).Round(100*time.Millisecond))
}

// stopwatch keeps the lateness of the new tasks by the stretch of time in which
// they were due.
type stopwatch struct {
	mu        sync.Mutex
	stretches []stretch
}

// The stretches that are compared, each before its number of shards.
const (
	stretchBefore   = "before the change to"
	stretchChanging = "while changing to"
)

type stretch struct {
	name     string
	from     time.Time
	lateness fleet.Lateness
}

func (s *stopwatch) begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stretches = append(s.stretches, stretch{name: name, from: time.Now()})
}

func (s *stopwatch) note(d fleet.Delivery) {
	if !strings.HasPrefix(d.MessageId, "n-") {
		return
	}
	ms, _ := d.Headers["x-duefleet-due"].(int64)
	due := time.UnixMilli(ms)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.stretches) - 1; i >= 0; i-- {
		if due.After(s.stretches[i].from) {
			s.stretches[i].lateness = append(s.stretches[i].lateness, d.At.Sub(due))
			return
		}
	}
}

// check holds the punctuality in all changes against that just before each of them.
func (s *stopwatch) check(t *testing.T) {
	t.Helper()
	var first, before, changing fleet.Lateness
	for i := range s.stretches {
		st := &s.stretches[i]
		slices.Sort(st.lateness)
		t.Logf("lateness %s: p50 %s, p99 %s, max %s of %d tasks", st.name,
			st.lateness.At(0.5), st.lateness.At(0.99), st.lateness.At(1), len(st.lateness))
		switch {
		case strings.HasPrefix(st.name, stretchBefore):
			if first == nil {
				first = st.lateness
			}
			before = append(before, st.lateness...)
		case strings.HasPrefix(st.name, stretchChanging):
			changing = append(changing, st.lateness...)
		}
	}
	slices.Sort(before)
	slices.Sort(changing)
	was, is := before.At(0.99), changing.At(0.99)
	t.Logf("lateness p99 of all changes %s, before them %s: %.1f times; before the first %s: %.1f times",
		is, was, float64(is)/float64(was), first.At(0.99), float64(is)/float64(first.At(0.99)))
	if limit := 3 * was; is > limit && !raceEnabled {
		t.Errorf("lateness p99 while resharding is %s, want at most three times that before, %s", is, limit)
	}
}
