package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// resharding describes a load under which M changes, and other events during it.
type resharding struct {
	pending int
	rate    int // new tasks per second
	lease   time.Duration
	// before is called before each change, changing when it begins, and after when all
	// have ended.
	before, changing func(m int)
	after            func()
	// kills reports whether a scanner is killed in the change to m shards.
	kills func(m int) bool
}

// window is the topic's window in TestShardsUnderLoad. A scanner has at most twice as
// many tasks in flight.
const window = 250

// TestShardsUnderLoad: under load, M changes from 4 to 16, 3 and 8 through Consul. Two
// producers schedule, cancel, reschedule and replace tasks. One keeps its placement until
// a shard refuses it; the other reads the placement before every call. In the first
// change a scanner is killed. Nothing is lost, early or in a wrong shard, and nothing
// cancelled arrives. Only tasks in flight at the kill may arrive twice.
func TestShardsUnderLoad(t *testing.T) {
	t.Parallel()
	nothing := func(int) {}
	newConsulSource(t).reshardUnder(resharding{
		pending: 5000, rate: 200, lease: 15 * time.Second,
		before: nothing, changing: nothing, after: func() {},
		kills: func(m int) bool { return m == 16 },
	})
}

func (w *source) reshardUnder(r resharding) {
	w.t.Helper()
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"lease": r.lease.String(), "window": window}))
	w.start(4)
	w.consume("orders.due")
	far := orders("orders", "far", r.pending, time.Now().Add(time.Hour), time.Hour, 200)
	w.schedule(far...)

	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	var running errgroup.Group
	loads := []*load{
		newLoad("n-old", r.rate/2, far[:r.pending/2], w.oldClient),
		newLoad("n-new", r.rate/2, far[r.pending/2:], w.newClient),
	}
	for _, l := range loads {
		running.Go(func() error { return l.run(ctx, w) })
	}
	kills := 0
	for i, m := range []int{16, 3, 8} {
		r.before(m)
		r.changing(m)
		began := time.Now()
		if !r.kills(m) {
			w.reshard(m)
		} else {
			letGo := w.holdUp(loads[0].last, m)
			w.set("orders", fleet.Topic{"shards": m})
			w.migrating(m)
			w.killAndStart(i)
			letGo()
			w.settled(m)
			kills++
		}
		w.t.Logf("%d shards after %s", m, time.Since(began).Round(100*time.Millisecond))
	}
	r.after()
	stop()
	check.OK(w.t, running.Wait())
	for _, l := range loads {
		w.hasten(l.far)
	}
	found := w.finish()
	w.t.Logf("%d promised, %d delivered, %d arrived twice, %d marked as redelivered",
		found.Promised, found.Delivered, found.Duplicated, found.Redelivered)
	w.checkRepeats()
	if most := kills * 2 * window; found.Duplicated > most {
		w.t.Errorf("%d duplicates, want at most the %d that were in flight at the kills", found.Duplicated, most)
	}
	found.Duplicated = 0
	if err := found.Err(); err != nil {
		w.t.Error(err)
	}
}

// killAndStart kills a scanner and starts it again.
func (w *source) killAndStart(victim int) {
	w.t.Helper()
	check.OK(w.t, w.scanners[victim].Kill())
	check.OK(w.t, w.scanners[victim].Start(check.Context(w.t)))
}

// oldClient returns the client that keeps its placement.
func (w *source) oldClient() fleet.Recorder { return w.recorder }

// newClient returns a client that has not read a placement.
func (w *source) newClient() fleet.Recorder {
	return fleet.Recorder{Client: w.fixture.newClient(), Ledger: w.recorder.Ledger}
}

// load schedules rate tasks per second, due within a second. On every beat it changes one
// task of the far future: it cancels, reschedules or replaces it.
type load struct {
	prefix string
	rate   int
	far    []fleet.Order // unchanged tasks; the last twenty are never changed
	last   []fleet.Order
	client func() fleet.Recorder
}

func newLoad(prefix string, rate int, far []fleet.Order, client func() fleet.Recorder) *load {
	return &load{prefix: prefix, rate: rate, far: far, last: far[len(far)-lasting:], client: client}
}

// lasting is the number of a load's far tasks that stay unchanged.
const lasting = 20

func (l *load) run(ctx context.Context, w *source) error {
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
		batch := orders("orders", fmt.Sprintf("%s-%d", l.prefix, i), n, time.Now().Add(200*time.Millisecond),
			800*time.Millisecond, 200)
		if err := r.Schedule(w.t.Context(), batch...); err != nil {
			return err
		}
		if len(l.far) > lasting {
			if err := w.touch(r, i, l.far[0]); err != nil {
				return err
			}
			l.far = l.far[1:]
		}
	}
}

func (w *source) touch(r fleet.Recorder, i int, o fleet.Order) error {
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

// hasten makes the remaining tasks of the far future due soon. It finds each by its ID,
// in whatever shard it is.
func (w *source) hasten(far []fleet.Order) {
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
	check.OK(w.t, g.Wait())
	w.t.Logf("%d tasks found by their IDs and made due within %s", len(far), time.Since(began).Round(100*time.Millisecond))
}
