package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

// The load of TestShardsUnderLoad. The race detector costs several times the
// processor that the load does; with it the same steps are run with a tenth.
const (
	reshardPending = 200_000
	reshardRate    = 2000 // new tasks a second
	reshardRace    = 10
	reshardCalm    = 15 * time.Second // before the first change
	// reshardPatience is for one change, on a machine that does other things.
	reshardPatience = 4 * time.Minute
)

// TestShardsUnderLoad: M goes 4, 16, 3, 8 through Consul under load, while two
// producers schedule, cancel, move and replace tasks: one that keeps the placement
// it once read until a shard refuses it, and one that reads it anew every time. In
// each change a scanner is killed. Nothing is lost, early, stranded or undead;
// what arrives twice was in flight at a kill; tasks stay as punctual as before, up
// to a factor of three.
//
// It takes minutes and a machine that does nothing else: it runs with
// DUEFLEET_TEST_UNDER_LOAD=1 only.
func TestShardsUnderLoad(t *testing.T) {
	if os.Getenv("DUEFLEET_TEST_UNDER_LOAD") == "" {
		t.Skip("set DUEFLEET_TEST_UNDER_LOAD=1 to change M under full load, on a machine that does nothing else")
	}
	stacktest.Need(t, "consul")
	pending, rate := reshardPending, reshardRate
	if raceEnabled {
		pending, rate = pending/reshardRace, rate/reshardRace
	}
	w := newConsulWish(t)
	lateness := &stopwatch{}
	w.tap = lateness.note
	w.set("orders", declared("orders", fleet.Topic{"lease": "3s", "window": 500}))
	w.start(4)
	w.consume("orders.due")
	far := orders("orders", "far", pending, time.Now().Add(2*time.Minute), 20*time.Second, 200)
	w.schedule(far...)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load errgroup.Group
	load.Go(func() error { return w.load(ctx, "n-old", rate/2, far[:pending/2], w.oldClient) })
	load.Go(func() error { return w.load(ctx, "n-new", rate/2, far[pending/2:], w.newClient) })

	lateness.begin("before")
	w.stays(reshardCalm, func() bool { return true })
	lateness.begin("while resharding")
	for i, m := range []int{16, 3, 8} {
		w.set("orders", fleet.Topic{"shards": m})
		w.killDuring(i, m)
	}
	lateness.begin("after")
	stop()
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	w.expire(far)
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
	w.await(fmt.Sprintf("a change to %d shards", m), func() bool {
		s := w.status().Topic("orders")
		return s.Phase == "migrating" && s.Shards == m
	})
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
		s := w.status().Topic("orders")
		return s.Shards == m && s.Phase == "stable"
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
func (w *wish) load(ctx context.Context, prefix string, rate int, far []fleet.Order, client func() fleet.Recorder) error {
	const beat = 50 * time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	n := rate * int(beat/time.Millisecond) / 1000
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		r := client()
		batch := orders("orders", fmt.Sprintf("%s-%d", prefix, i), n, time.Now().Add(200*time.Millisecond), 800*time.Millisecond, 200)
		if err := r.Schedule(w.t.Context(), batch...); err != nil {
			return err
		}
		if err := w.touch(r, i, far[i%len(far)]); err != nil {
			return err
		}
	}
}

func (w *wish) touch(r fleet.Recorder, i int, o fleet.Order) error {
	if time.Until(o.Due) < 10*time.Second {
		return nil // it may be delivered already
	}
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

// expire waits until the tasks of the far future are due.
func (w *wish) expire(far []fleet.Order) {
	last := far[len(far)-1].Due
	w.stays(time.Until(last), func() bool { return true })
}

// stopwatch keeps the lateness of the new tasks by the stretch of time in which
// they were due.
type stopwatch struct {
	mu        sync.Mutex
	stretches []stretch
}

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

// check holds the punctuality while resharding against that before.
func (s *stopwatch) check(t *testing.T) {
	t.Helper()
	var p99 []time.Duration
	for i := range s.stretches {
		st := &s.stretches[i]
		slices.Sort(st.lateness)
		p99 = append(p99, st.lateness.At(0.99))
		t.Logf("lateness %s: p50 %s, p99 %s, max %s of %d tasks", st.name,
			st.lateness.At(0.5), st.lateness.At(0.99), st.lateness.At(1), len(st.lateness))
	}
	if limit := 3 * p99[0]; p99[1] > limit {
		t.Errorf("lateness p99 while resharding is %s, want at most three times that before, %s", p99[1], limit)
	}
}
