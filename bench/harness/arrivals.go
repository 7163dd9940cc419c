package harness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/duefleet/duefleet/test/fleet"
)

// Arrivals are what came out of a queue. Lateness is the consumer's clock minus
// due, both of this machine. A message that came early or twice is counted as a
// fault and stands in no percentile.
type Arrivals struct {
	mu      sync.Mutex
	hist    *hdrhistogram.Histogram // µs
	from    int                     // tasks of lower numbers are another load's
	begin   time.Time               // zero: all stand in the percentiles
	end     time.Time               // zero: it has not come
	seen    map[int]struct{}
	seconds map[int64]int // arrivals by whole seconds since first
	summary Summary
}

// Summary is what became of a load.
type Summary struct {
	// Arrived counts each task once.
	Arrived, Early, Repeated, Strange int
	// First and Last arrival.
	First, Last time.Time
}

// NewArrivals returns an empty count.
func NewArrivals() *Arrivals {
	const longest, digits = int64(time.Hour / time.Microsecond), 3
	return &Arrivals{hist: hdrhistogram.New(1, longest, digits), seen: map[int]struct{}{}, seconds: map[int64]int{}}
}

// Begin has the percentiles begin: what was due before now, while the load rose,
// is in none.
func (a *Arrivals) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin = time.Now()
	a.hist.Reset()
}

// End has them end: what is due after now, while the load falls, is in none.
func (a *Arrivals) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = time.Now()
}

// headerDue is what duefleet says the task was due at: the requested time, or
// when Redis stored it if that was later.
const headerDue = "x-duefleet-due"

func (a *Arrivals) handle(m fleet.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	number, err := numberOf(m.MessageId)
	due, dueErr := dueOf(m.Body)
	if err != nil || dueErr != nil {
		a.summary.Strange++
		return
	}
	if number < a.from {
		return
	}
	if ms, ok := m.Headers[headerDue].(int64); ok {
		due = time.UnixMilli(ms)
	}
	if _, again := a.seen[number]; again {
		a.summary.Repeated++
		return
	}
	a.seen[number] = struct{}{}
	a.count(m.At, due)
}

func (a *Arrivals) count(at, due time.Time) {
	s := &a.summary
	s.Arrived++
	if s.First.IsZero() {
		s.First = at
	}
	s.Last = at
	a.seconds[int64(at.Sub(s.First)/time.Second)]++
	late := at.Sub(due)
	if late < 0 {
		s.Early++
		return
	}
	if due.Before(a.begin) || !a.end.IsZero() && due.After(a.end) {
		return
	}
	_ = a.hist.RecordValue(min(int64(late/time.Microsecond), a.hist.HighestTrackableValue()))
}

// Summary is the state so far.
func (a *Arrivals) Summary() Summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.summary
}

// Percentile is the lateness, in ms, that p percent do not exceed; 100 is the
// largest. It is 0 where nothing arrived.
func (a *Arrivals) Percentile(p float64) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.hist.ValueAtPercentile(p)) / 1000
}

// Counted is how many stand in the percentiles.
func (a *Arrivals) Counted() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.hist.TotalCount())
}

// Second is how many arrived in the n-th whole second since the first arrival.
func (a *Arrivals) Second(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seconds[int64(n)]
}

// Await returns once n tasks arrived, or with ctx's error.
func (a *Arrivals) Await(ctx context.Context, n int) error {
	return Poll(ctx, 5*time.Millisecond, func() (bool, error) { return a.Summary().Arrived >= n, nil })
}

// Consume counts what comes out of a queue that exists until stop is called.
func (r *Run) Consume(ctx context.Context, queue string) (a *Arrivals, stop func(), err error) {
	return r.ConsumeFrom(ctx, queue, 0)
}

// ConsumeFrom is Consume of tasks of some number and above; others are acked and
// forgotten.
func (r *Run) ConsumeFrom(ctx context.Context, queue string, from int) (a *Arrivals, stop func(), err error) {
	a = NewArrivals()
	a.from = from
	c, err := fleet.NewConsumer(fleet.ConsumerConfig{URL: r.URL(), Queue: queue, Handle: a.handle})
	if err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(running) // without an error once it is told to end
	}()
	stop = func() { cancel(); <-done }
	select {
	case <-c.Ready():
		return a, stop, nil
	case <-time.After(30 * time.Second):
		stop()
		return nil, nil, fmt.Errorf("consume from %s: not possible within 30 s", queue)
	}
}
