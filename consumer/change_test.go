package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// gate blocks the handler of one attempt of one payload, and then fails it.
type gate struct {
	t            *testing.T
	seen         log
	began, fails chan struct{}
	once         sync.Once
}

func newGate(t *testing.T) *gate {
	return &gate{t: t, began: make(chan struct{}), fails: make(chan struct{})}
}

// handler blocks the first attempt at "first" and fails it; others succeed.
func (g *gate) handler(_ context.Context, d task.Delivery) error {
	g.seen.add(d)
	if string(d.Payload) != "first" || d.Attempt != 1 {
		return nil
	}
	g.once.Do(func() { close(g.began) })
	hold(g.t, g.fails)
	return errTest
}

// hold blocks a handler until it may continue, or its test ends.
func hold(t *testing.T, goOn <-chan struct{}) {
	select {
	case <-goOn:
	case <-t.Context().Done():
	}
}

// payloads returns the handled payloads, in order.
func (g *gate) payloads() (all []string) {
	for _, d := range g.seen.all() {
		all = append(all, fmt.Sprintf("%s/%d", d.Payload, d.Attempt))
	}
	return all
}

// quiet ends the test if more than want is handled in the time in which a retry would be
// due.
func (w *fixture) quiet(g *gate, want ...string) {
	w.t.Helper()
	check.Until(w.t, "all is handled", func() bool { return len(g.payloads()) >= len(want) })
	w.schedule("later", "later")
	check.Until(w.t, "a task that was due after it is handled", func() bool { return g.seen.of("later") == 1 })
	want = append(want, "later/1")
	if got := g.payloads(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("handled %q, want %q", got, want)
	}
}

func (w *fixture) forgotten() {
	w.t.Helper()
	check.Until(w.t, "the scanner has settled it", func() bool {
		_, there := w.stored("a")
		return !there
	})
}

// changes are calls of a producer while a handler has the task, and the payloads handled
// in the end.
func changes() map[string]struct {
	change func(w *fixture, g *gate)
	want   []string
} {
	type row = struct {
		change func(w *fixture, g *gate)
		want   []string
	}
	cancel := func(w *fixture) {
		if err := w.producer.Cancel(w.t.Context(), orders, "a"); err != nil && !errors.Is(err, task.ErrNotFound) {
			w.t.Fatal(err)
		}
	}
	schedule := func(w *fixture, when producer.When) {
		w.request(producer.Request{ID: "a", Payload: []byte("second"), When: when})
	}
	return map[string]row{
		"cancelled":               {func(w *fixture, _ *gate) { cancel(w) }, []string{"first/1"}},
		"replaced by a later one": {func(w *fixture, _ *gate) { schedule(w, producer.In(time.Hour)) }, []string{"first/1"}},
		"replaced by one that is delivered": {func(w *fixture, g *gate) {
			schedule(w, producer.Now())
			check.Until(w.t, "the second is handled", func() bool { return len(g.payloads()) == 2 })
		}, []string{"first/1", "second/1"}},
		"replaced by one that is cancelled": {func(w *fixture, _ *gate) {
			schedule(w, producer.In(time.Hour))
			cancel(w)
		}, []string{"first/1"}},
		"moved": {func(w *fixture, _ *gate) {
			_, err := w.producer.Reschedule(w.t.Context(), orders, "a", producer.In(time.Hour))
			if err != nil && !errors.Is(err, task.ErrNotFound) {
				w.t.Fatal(err)
			}
		}, []string{"first/1", "first/2"}},
	}
}

func TestWhatTheProducerChangedIsNotBroughtBackByItsRetry(t *testing.T) {
	t.Parallel()
	for name, row := range changes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t).serve()
			g := newGate(t)
			c := w.consume(Config{Policy: Fixed(0, 5), Concurrency: 3, Handler: g.handler})
			w.schedule("a", "first")
			check.Closed(t, "the handler has it", g.began)
			w.forgotten()
			row.change(w, g)
			close(g.fails)
			check.Until(t, "the handler's failure is dealt with", func() bool {
				return counted(c, superseded)+counted(c, retried) == 1
			})
			w.quiet(g, row.want...)
		})
	}
}

// Only a consumer that remembers recognizes a second version that was stored and removed
// while the first was handled.
func TestWithoutRememberingACancelHoldsToo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cancelled", "replaced by a later one", "moved"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t).serve()
			g := newGate(t)
			c := w.consume(Config{Policy: Fixed(0, 5), Concurrency: 3, Remember: -1, Handler: g.handler})
			w.schedule("a", "first")
			check.Closed(t, "the handler has it", g.began)
			w.forgotten()
			changes()[name].change(w, g)
			close(g.fails)
			check.Until(t, "the handler's failure is dealt with", func() bool {
				return counted(c, superseded)+counted(c, retried) == 1
			})
			w.quiet(g, changes()[name].want...)
		})
	}
}

// lease publishes a task's message and leaves the task leased, like a scanner that has
// published it and is about to settle.
func (w *fixture) lease(id string) (settle func()) {
	w.t.Helper()
	_, err := w.topic.Ensure(w.t.Context(), 1)
	check.OK(w.t, err)
	w.schedule(id, "first")
	batch, err := w.topic.Shard(0).Claim(w.t.Context(), shardClaim())
	check.OK(w.t, err)
	if len(batch.Tasks) != 1 {
		w.t.Fatalf("claimed %d tasks", len(batch.Tasks))
	}
	w.publish(batch.Tasks[0].Task)
	return func() {
		_, err := w.topic.Shard(0).Settle(w.t.Context(), leaseOf(batch))
		check.OK(w.t, err)
	}
}

// nextMillisecond waits until Redis's clock has gone on.
func (w *fixture) nextMillisecond() {
	w.t.Helper()
	now := func() int64 { return servertest.RedisNow(w.t, w.rdb).UnixMilli() }
	before := now()
	check.Until(w.t, "the next millisecond", func() bool { return now() > before })
}

func TestARetryIsStoredWhileTheScannerHasNotSettled(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		settle := w.lease("a")
		c := w.consume(Config{Policy: Fixed(time.Hour, 5), Handler: func(context.Context,
			task.Delivery) error {
			return errTest
		}})
		check.Until(t, "it is stored again", func() bool { return counted(c, retried) == 1 })
		settle()
		s, there := w.stored("a")
		if !there || s.Attempt != 2 || s.State != task.Waiting || s.Reason != errTest.Error() {
			t.Errorf("stored: %v %+v", there, s)
		}
	})
}

func TestAChangeWhileTheScannerHasNotSettledHolds(t *testing.T) {
	t.Parallel()
	for name, row := range changes() {
		if name == "replaced by one that is delivered" {
			continue // nobody delivers here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			settle := w.lease("a")
			g := newGate(t)
			c := w.consume(Config{Policy: Fixed(0, 5), Handler: g.handler})
			check.Closed(t, "the handler has it", g.began)
			row.change(w, g)
			close(g.fails)
			check.Until(t, "the handler's failure is dealt with", func() bool { return counted(c, superseded) == 1 })
			settle()
			if s, there := w.stored("a"); there && s.NextAttempt.Before(time.Now().Add(time.Minute)) {
				t.Errorf("stored: %+v", s)
			}
			if counted(c, retried) != 0 {
				t.Error("it was tried again")
			}
		})
	}
}

func TestAChainEndsWithACancel(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	began, goOn := make(chan struct{}), make(chan struct{})
	var seen log
	c := w.consume(Config{Handler: func(_ context.Context, d task.Delivery) error {
		seen.add(d)
		if d.ID != "a" {
			return nil
		}
		close(began)
		hold(t, goOn)
		return d.Next(time.Now(), nil)
	}})
	w.schedule("a", "")
	check.Closed(t, "the handler has it", began)
	w.forgotten()
	if err := w.producer.Cancel(t.Context(), orders, "a"); !errors.Is(err, task.ErrNotFound) {
		t.Fatal(err)
	}
	close(goOn)
	check.Until(t, "the step is done", func() bool { return counted(c, done) == 1 })
	w.schedule("b", "")
	check.Until(t, "a task that was due later is done", func() bool { return counted(c, done) == 2 })
	if n := seen.of("a"); n != 1 {
		t.Errorf("handled %d times", n)
	}
	if _, there := w.stored("a"); there {
		t.Error("the next step is stored")
	}
}

// TestACancelReachesANextStepThatIsBeingStored at any point between the cancel and the
// step's message: the step's handler doesn't run.
func TestACancelReachesANextStepThatIsBeingStored(t *testing.T) {
	t.Parallel()
	for name, remember := range map[string]time.Duration{"remembering": time.Hour, "not remembering": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eitherForm(t, func(t *testing.T, w *fixture) {
				w.serve()
				var seen log
				var cancelled atomic.Bool
				c := w.consume(Config{
					Remember: remember,
					Handler: func(_ context.Context, d task.Delivery) error {
						seen.add(d)
						if d.ID != "a" {
							return nil
						}
						return d.Next(time.Now(), []byte("second"))
					},
					step: func(s step) {
						if s != stepAllowed || cancelled.Swap(true) {
							return
						}
						if err := w.producer.Cancel(context.Background(), orders, "a"); err != nil && !errors.Is(err, task.ErrNotFound) {
							t.Error(err)
						}
					},
				})
				w.request(producer.Request{ID: "a", Payload: []byte("first"), Headers: map[string]string{"k": "v"}})
				check.Until(t, "the step's message is acked", func() bool { return counted(c, superseded)+counted(c, done) >= 2 })
				if n := seen.of("a"); n != 1 || counted(c, superseded) != 1 {
					t.Errorf("handled %d times, %v superseded", n, counted(c, superseded))
				}
				c.stop()
			})
		})
	}
}

// TestANextStepHasNoHeaderMore: the consumer removes its own mark.
func TestANextStepHasNoHeaderMore(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var seen log
	c := w.consume(Config{Remember: -1, Handler: func(_ context.Context, d task.Delivery) error {
		if seen.add(d); string(d.Payload) == "first" {
			return d.Next(time.Now(), []byte("second"))
		}
		return nil
	}})
	headers := map[string]string{}
	for i := range task.MaxHeaders {
		headers[fmt.Sprint("k", i)] = "v"
	}
	w.request(producer.Request{ID: "a", Payload: []byte("first"), Headers: headers})
	check.Until(t, "the next step is done", func() bool { return counted(c, done) == 2 })
	for _, d := range seen.all() {
		if !maps.Equal(d.Headers, headers) {
			t.Errorf("%s has %d headers: %v", d.Payload, len(d.Headers), d.Headers)
		}
	}
}

// TestACancelReachesAnOlderVersionThatWaitsInTheQueue: no consumer runs while the task is
// delivered, stored again and cancelled. The older version is not handled. A consumer
// without a memory handles it, but neither tries it again nor follows it by a next step.
func TestACancelReachesAnOlderVersionThatWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	cancels := map[string]func(w *fixture) error{
		"Cancel":     func(w *fixture) error { return w.producer.Cancel(t.Context(), orders, "a") },
		"CancelMany": func(w *fixture) error { return w.producer.CancelMany(t.Context(), orders, []string{"a"})[0] },
	}
	ends := map[string]func(d task.Delivery) error{
		"fails":      func(task.Delivery) error { return errTest },
		"is a chain": func(d task.Delivery) error { return d.NextWhen(task.Now(), nil) },
	}
	for by, cancel := range cancels {
		for how, end := range ends {
			for _, remember := range []time.Duration{0, -1} {
				t.Run(fmt.Sprintf("%s, the handler %s, remember %d", by, how, remember), func(t *testing.T) {
					t.Parallel()
					w := newFixture(t)
					w.lease("a")()
					w.nextMillisecond()
					w.request(producer.Request{ID: "a", Payload: []byte("second"), When: producer.In(time.Hour)})
					check.OK(w.t, cancel(w))
					var seen log
					c := w.consume(Config{Policy: Fixed(0, 5), Remember: remember, Handler: func(_ context.Context,
						d task.Delivery) error {
						seen.add(d)
						return end(d)
					}})
					check.Until(t, "the delivery is dealt with", func() bool { return counted(c, superseded)+counted(c, done) == 1 })
					handled := 0
					if remember < 0 {
						handled = 1
					}
					if _, there := w.stored("a"); there || seen.of("a") != handled || counted(c, retried) != 0 {
						t.Errorf("stored: %t, handled %d times, want %d", there, seen.of("a"), handled)
					}
				})
			}
		}
	}
}

// TestACancelReachesADeliveryThatWaitsInTheQueue: it was delivered once, and nothing of it
// is stored. A version that is scheduled after the cancel, perhaps in the same millisecond,
// is handled.
func TestACancelReachesADeliveryThatWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var ids []string
	for i := range 50 {
		id := strconv.Itoa(i)
		ids = append(ids, id)
		w.lease(id)()
		w.nextMillisecond()
		if err := w.producer.Cancel(t.Context(), orders, id); !errors.Is(err, task.ErrNotFound) {
			t.Fatalf("cancelled %v", err)
		}
		w.lease(id)()
	}
	var seen log
	c := w.consume(Config{Handler: func(_ context.Context, d task.Delivery) error { seen.add(d); return nil }})
	check.Until(t, "all are dealt with", func() bool { return counted(c, superseded)+counted(c, done) == 100 })
	for _, id := range ids {
		if n := seen.of(id); n != 1 {
			t.Errorf("task %s handled %d times", id, n)
		}
	}
}

// TestARescheduleThatFindsNoTaskMovesNoStep: the next step is due when its handler asked for
// it.
func TestARescheduleThatFindsNoTaskMovesNoStep(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lease("a")()
	c := w.consume(Config{Handler: func(ctx context.Context, d task.Delivery) error {
		if _, err := w.producer.Reschedule(ctx, orders, "a", producer.In(time.Second)); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("moved what is not stored: %v", err)
		}
		return d.NextWhen(task.In(30*24*time.Hour), nil)
	}})
	check.Until(t, "the handler is done", func() bool { return counted(c, done) == 1 })
	s, there := w.stored("a")
	if left := time.Until(s.Due); !there || left < 29*24*time.Hour {
		t.Errorf("stored: %t, due in %s", there, left)
	}
}

func TestACancelReachesARetryThatWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	for name, remember := range map[string]time.Duration{"remembering": time.Hour, "not remembering": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eitherForm(t, func(t *testing.T, w *fixture) {
				w.serve()
				c := w.consume(Config{Policy: Fixed(0, math.MaxInt), Remember: remember,
					Handler: func(context.Context, task.Delivery) error { return errTest }})
				w.schedule("a", "")
				check.Until(t, "it failed", func() bool { return counted(c, retried) > 0 })
				c.stop()
				check.Until(t, "the retry waits in the queue", func() bool { return w.waiting(queue) == 1 })
				w.forgotten()
				_ = w.producer.Cancel(t.Context(), orders, "a")
				var seen log
				logs, out := logger()
				c = w.consume(Config{Remember: remember, Log: logs, Handler: func(_ context.Context,
					d task.Delivery) error {
					seen.add(d)
					return nil
				}})
				check.Until(t, "it is acked", func() bool { return counted(c, superseded) == 1 })
				if len(lines(out, "delivery acked without its handler: the task was cancelled or replaced", "id=a")) != 1 {
					t.Errorf("logged %s", out)
				}
				if len(seen.all()) != 0 {
					t.Errorf("handled %+v", seen.all())
				}
			})
		})
	}
}

// TestChangesHoldWhileShardsChange: many tasks fail again and again while the shard count
// goes up and down. Each is cancelled or replaced once.
func TestChangesHoldWhileShardsChange(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	const tasks, workers = 60, 8
	var cancelled sync.Map // ID -> time after Cancel returned
	var broken atomic.Int64
	var seen log
	meeting := newMeeting(t, workers)
	w.consume(Config{
		Policy: Fixed(20*time.Millisecond, math.MaxInt), Concurrency: workers,
		Handler: func(_ context.Context, d task.Delivery) error {
			if string(d.Payload) == meets {
				meeting.meet()
				return nil
			}
			_, was := cancelled.Load(d.ID)
			if was && string(d.Payload) == "first" {
				broken.Add(1)
			}
			seen.add(d)
			if string(d.Payload) == "second" {
				return nil
			}
			return errTest
		},
	})
	for i := range tasks {
		w.schedule(fmt.Sprint(i), "first")
	}
	for i, shards := range []int{7, 3, 8, 2} {
		w.reshard(shards)
		for j := i * tasks / 4; j < (i+1)*tasks/4; j++ {
			id := fmt.Sprint(j)
			n := seen.of(id)
			check.Until(t, "it fails again and again", func() bool { return seen.of(id) > n })
			if err := w.producer.Cancel(t.Context(), orders, id); err != nil && !errors.Is(err, task.ErrNotFound) {
				t.Fatal(err)
			}
			// A handler that began before Cancel returned may continue; none is left now.
			w.meet(meeting, "met "+id)
			cancelled.Store(id, true)
			if j%2 == 0 {
				w.schedule(id, "second")
			}
		}
	}
	second := func() (n int) {
		for _, d := range seen.all() {
			if string(d.Payload) == "second" {
				n++
			}
		}
		return n
	}
	check.Progress(t, "what replaced them is done", second, func() bool { return second() == tasks/2 })
	var p shard.Placement
	stage := func() int {
		var err error
		p, err = w.topic.Placement(t.Context())
		check.OK(w.t, err)
		return int(p.Epoch)
	}
	check.Progress(t, "the change is over", stage, func() bool { return p.Shards == 2 && p.Phase == shard.Stable })
	if n := broken.Load(); n != 0 {
		t.Errorf("%d deliveries of tasks that were cancelled before", n)
	}
	for i := range tasks {
		check.Until(t, fmt.Sprintf("the scanner to settle task %d, which nothing follows", i), func() bool {
			_, there := w.stored(fmt.Sprint(i))
			return !there
		})
	}
}

// meets is the payload of tasks whose handlers wait for each other.
const meets = "meets"

// meeting brings all workers of a consumer together. Each has a handler in it, so none
// still has an earlier delivery.
type meeting struct {
	t    *testing.T
	size int

	mu   sync.Mutex
	here int
	over chan struct{}
}

func newMeeting(t *testing.T, size int) *meeting {
	return &meeting{t: t, size: size, over: make(chan struct{})}
}

// meet is called by a handler. It waits until all handlers have called it.
func (m *meeting) meet() {
	m.mu.Lock()
	over := m.over
	m.here++
	if m.here%m.size == 0 {
		close(m.over)
		m.over = make(chan struct{})
	}
	m.mu.Unlock()
	hold(m.t, over)
}

func (m *meeting) met() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.here
}

// meet returns when all workers were at a meeting.
func (w *fixture) meet(m *meeting, name string) {
	w.t.Helper()
	before := m.met()
	for i := range m.size {
		w.schedule(fmt.Sprint(name, " ", i), meets)
	}
	check.Count(w.t, "all workers to meet", before+m.size, m.met)
}
