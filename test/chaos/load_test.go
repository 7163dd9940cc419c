//go:build chaos

package chaos_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	// The load schedules loadBatch tasks every loadBeat: 2,000 per second.
	loadBeat  = 50 * time.Millisecond
	loadBatch = 100
)

// load schedules tasks that are due within a second and a half, cancels some and
// reschedules some, until it is stopped. Failed calls are in the ledger as changes that
// may have happened.
type load struct {
	cancel context.CancelFunc
	done   chan struct{}
	rate   float64          // tasks per second, known when the load has stopped
	failed atomic.Int64     // failed calls, not tasks
	last   atomic.Value     // error
	now    func() time.Time // Redis's clock
	calls  calls
	ledger *fleet.Ledger
	later  time.Duration // until tasks are due that are cancelled or rescheduled
	topics []string
	// size is how many tasks a beat schedules. Defaults to loadBatch.
	size int
	// spread gives each task of a beat to the next topic. Otherwise a beat has one topic.
	spread bool
	// reuse schedules, moves and cancels the same IDs in a beat. nil: no ID is used again.
	reuse func(ctx context.Context, topic string, beat int) error
}

// calls are the calls that a load makes. They enter their outcomes into the ledger, except for a
// Cancel that returns task.ErrNotFound.
type calls interface {
	Schedule(ctx context.Context, orders ...fleet.Order) error
	Cancel(ctx context.Context, k fleet.Key) error
	Reschedule(ctx context.Context, k fleet.Key, due time.Time) error
}

// begin starts the load, and returns once tasks arrive.
func (r *harness) begin(topics ...string) {
	r.t.Helper()
	if len(topics) == 0 {
		topics = []string{"orders"}
	}
	r.beginWith(&load{calls: r.recorder, later: 20 * time.Second, topics: topics})
}

func (r *harness) beginWith(l *load) {
	r.t.Helper()
	r.load = l
	r.startLoad(l)
	r.await("tasks to arrive", func() bool { return r.recorder.Ledger.Count() > 5*loadBatch })
}

// startLoad starts a load that the test's end stops.
func (r *harness) startLoad(l *load) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	l.cancel, l.done, l.now, l.ledger = cancel, make(chan struct{}), r.clock.now, r.recorder.Ledger
	l.size = cmp.Or(l.size, loadBatch)
	go l.run(ctx)
	r.t.Cleanup(l.stop)
}

func (l *load) stop() {
	l.cancel()
	<-l.done
}

func (l *load) run(ctx context.Context) {
	defer close(l.done)
	began := time.Now()
	for beat := 0; ; beat++ {
		select {
		case <-ctx.Done():
			l.rate = float64(beat*l.size) / time.Since(began).Seconds()
			return
		case <-time.After(time.Until(began.Add(time.Duration(beat) * loadBeat))): // missed beats are caught up
		}
		l.note(l.beat(ctx, beat))
	}
}

// topic returns the topic of the i-th task of a beat.
func (l *load) topic(beat, i int) string {
	if l.spread {
		beat = beat*l.size + i
	}
	return l.topics[beat%len(l.topics)]
}

// beat schedules a batch, then cancels one of its tasks and reschedules another.
func (l *load) beat(ctx context.Context, beat int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	now := l.now()
	var batch []fleet.Order
	for i := range l.size {
		due := now.Add(300*time.Millisecond + time.Duration(i)*1200*time.Millisecond/time.Duration(l.size))
		batch = append(batch, order(l.topic(beat, i), fmt.Sprintf("t-%d-%d", beat, i), due))
	}
	topic := l.topic(beat, 0)
	for _, kind := range []string{"cancelled", "moved"} {
		batch = append(batch, order(topic, fmt.Sprintf("%s-%d", kind, beat), now.Add(l.later)))
	}
	if err := l.calls.Schedule(ctx, batch...); err != nil {
		return err
	}
	k := fleet.Key{Topic: topic, ID: fmt.Sprintf("cancelled-%d", beat)}
	if err := l.calls.Cancel(ctx, k); err != nil {
		if errors.Is(err, task.ErrNotFound) { // an earlier try removed it, but its reply was lost
			l.ledger.MaybeCancelled(k)
		}
		return err
	}
	moved := fleet.Key{Topic: topic, ID: fmt.Sprintf("moved-%d", beat)}
	if err := l.calls.Reschedule(ctx, moved, l.now().Add(time.Second)); err != nil || l.reuse == nil {
		return err
	}
	return l.reuse(ctx, topic, beat)
}

func (l *load) note(err error) {
	if err != nil {
		l.failed.Add(1)
		l.last.Store(err.Error())
	}
}

func order(topic, id string, due time.Time) fleet.Order {
	return fleet.Order{
		Request: producer.Request{Topic: topic, ID: id, Payload: fmt.Appendf(nil, "%0200s", id)},
		Due:     due.Truncate(time.Millisecond),
	}
}

// arrivals records when messages arrived.
type arrivals struct {
	mu     sync.Mutex
	last   time.Time
	gap    time.Duration // the longest time without an arrival
	late   map[string]fleet.Lateness
	counts map[string]int
	ids    map[string]int           // number of messages by ID
	bodies map[string]int           // number of messages without an ID of the client, by body
	first  map[string]time.Duration // lateness of the first message by ID
	// latest has each topic's latest due time of a message, in ms.
	latest map[string]int64
}

// note adds a message that arrived at the given time of this machine's clock.
func (a *arrivals) note(d fleet.Delivery, at time.Time) {
	ms, _ := d.Headers["x-duefleet-due"].(int64)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.late == nil {
		a.late, a.counts = map[string]fleet.Lateness{}, map[string]int{}
		a.ids, a.first, a.latest = map[string]int{}, map[string]time.Duration{}, map[string]int64{}
	}
	if !a.last.IsZero() {
		a.gap = max(a.gap, at.Sub(a.last))
	}
	a.last = at
	a.counts[d.Type]++
	a.latest[d.Type] = max(a.latest[d.Type], ms)
	a.late[d.Type] = append(a.late[d.Type], d.At.Sub(time.UnixMilli(ms)))
	if a.ids[d.MessageId]++; a.ids[d.MessageId] == 1 {
		a.first[d.MessageId] = d.At.Sub(time.UnixMilli(ms))
	}
}

// unnamedBody begins the body of each message that is published without an ID.
const unnamedBody = "unnamed "

func (a *arrivals) noteUnnamed(body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bodies == nil {
		a.bodies = map[string]int{}
	}
	a.bodies[body]++
}

// unnamedArrivals returns the number of messages by body.
func (r *harness) unnamedArrivals() map[string]int {
	r.arrivals.mu.Lock()
	defer r.arrivals.mu.Unlock()
	return maps.Clone(r.arrivals.bodies)
}

// of returns how many tasks with a prefix arrived, the worst lateness of their first
// messages, and how many arrived more than once.
func (a *arrivals) of(prefix string) (tasks int, worst time.Duration, repeats int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, n := range a.ids {
		if strings.HasPrefix(id, prefix) {
			tasks++
			worst = max(worst, a.first[id])
			repeats += min(n-1, 1)
		}
	}
	return tasks, worst, repeats
}

func (a *arrivals) count(topic string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[topic]
}

// since returns the lateness of a topic's messages from the n-th on, in ascending order.
func (a *arrivals) since(topic string, n int) fleet.Lateness {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := append(fleet.Lateness{}, a.late[topic][n:]...)
	slices.Sort(late)
	return late
}
