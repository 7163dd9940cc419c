package harness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/duefleet/duefleet/test/fleet"
)

// Arrivals counts the messages that a consumer received from a queue, and how late they
// were. Lateness is the time of receipt minus due, both by this machine's clock. Messages
// that came early or twice are counted separately, and aren't in the percentiles.
type Arrivals struct {
	mu      sync.Mutex
	hist    *hdrhistogram.Histogram // µs
	from    int                     // tasks with lower numbers belong to another load
	begin   time.Time               // zero: no limit
	end     time.Time               // zero: no limit
	seen    map[int]struct{}
	seconds map[int64]int // arrivals by whole seconds since first
	summary Summary
	leave   bool // redelivered tasks are left out of the percentiles
}

// Summary is the result of a load.
type Summary struct {
	// Arrived counts each task once. Early ones came before they were due. Repeated
	// counts further messages of a task, and Strange messages that aren't the
	// benchmark's. Redelivered counts tasks that another scanner had claimed before.
	Arrived, Early, Repeated, Strange, Redelivered int
	// First and Last arrival.
	First, Last time.Time
}

// NewArrivals returns an empty Arrivals.
func NewArrivals() *Arrivals {
	const longest, digits = int64(time.Hour / time.Microsecond), 3
	return &Arrivals{hist: hdrhistogram.New(1, longest, digits), seen: map[int]struct{}{}, seconds: map[int64]int{}}
}

// Begin starts the percentiles. They leave out tasks due before now, while the load still
// rises.
func (a *Arrivals) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin = time.Now()
	a.hist.Reset()
}

// End ends the percentiles. They leave out tasks due after now, while the load falls.
func (a *Arrivals) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = time.Now()
}

// LeaveOutRedelivered makes the percentiles leave out tasks that another scanner had claimed.
func (a *Arrivals) LeaveOutRedelivered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave = true
}

// headerRedelivered is the header that is true if an earlier claim may have been delivered.
const headerRedelivered = "x-duefleet-redelivered"

// headerDue is the header with duefleet's due time of a task. That is the requested time,
// or if Redis stored the task later, the time of storing it.
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
	again, _ := m.Headers[headerRedelivered].(bool)
	if again {
		a.summary.Redelivered++
	}
	a.count(m.At, due, !again || !a.leave)
}

func (a *Arrivals) count(at, due time.Time, recorded bool) {
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
	if !recorded || due.Before(a.begin) || !a.end.IsZero() && due.After(a.end) {
		return
	}
	_ = a.hist.RecordValue(min(int64(late/time.Microsecond), a.hist.HighestTrackableValue()))
}

// Summary returns the result so far.
func (a *Arrivals) Summary() Summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.summary
}

// Percentile returns the lateness in ms that p percent of the arrivals don't exceed. 100
// gives the largest lateness. Without arrivals it returns 0.
func (a *Arrivals) Percentile(p float64) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.hist.ValueAtPercentile(p)) / 1000
}

// Counted returns the number of arrivals in the percentiles.
func (a *Arrivals) Counted() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.hist.TotalCount())
}

// Second returns the number of arrivals in the n-th whole second after the first arrival.
func (a *Arrivals) Second(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seconds[int64(n)]
}

// Await waits until n tasks have arrived. If ctx ends first, it returns ctx's error.
func (a *Arrivals) Await(ctx context.Context, n int) error {
	return Poll(ctx, 5*time.Millisecond, func() (bool, error) { return a.Summary().Arrived >= n, nil })
}

// Consume counts the arrivals from an existing queue until the caller calls stop.
func (r *Run) Consume(ctx context.Context, queue string) (a *Arrivals, stop func(), err error) {
	return r.ConsumeFrom(ctx, queue, 0)
}

// ConsumeFrom is Consume for tasks with the number from or above. It acknowledges other
// tasks without counting them.
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
		_ = c.Run(running) // returns nil after cancel
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
