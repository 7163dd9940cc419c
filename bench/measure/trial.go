package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
)

const (
	// warmUp is the number of tasks that make the connections and load the scripts before
	// the measurement.
	warmUp = 64
	// rise is the shortest time that a load runs before the measurement.
	rise = 2 * time.Second
)

// trial is one system under one load.
type trial struct {
	subject string
	system  harness.Scheduler
	// queue is the queue for its messages.
	queue string
	// meters measure the parts of the system; nil leaves out CPU time.
	meters meters
	// patience is how long to wait for tasks after the last due time.
	patience time.Duration
	// halfway is called in the middle of the load. Then redelivered tasks are in no percentile.
	// Defaults to nothing.
	halfway func() error
	// counted adds how many tasks arrive per second of the load.
	counted bool
}

// run warms up the system and then puts the load on it.
func (t trial) run(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
	if err := warm(ctx, r, t.system, t.queue); err != nil {
		return fmt.Errorf("%s: warm up: %w", t.subject, err)
	}
	return t.offer(ctx, r, load, s)
}

// offer puts the load on the system and adds the results. Before the measurement, the
// load runs for as long as its longest delay: only then are as many tasks due per second
// as are scheduled. Percentiles and CPU time cover the time from then to the end of the
// load. The numbers of early and missing tasks cover all tasks of the load.
func (t trial) offer(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
	first := load.First
	arrivals, stop, err := r.ConsumeFrom(ctx, t.queue, first)
	if err != nil {
		return err
	}
	defer stop()
	if t.halfway != nil {
		arrivals.LeaveOutRedelivered()
	}
	rising := load
	rising.For = max(r.Span(rise), load.To)
	if load.First, err = harness.Offer(ctx, t.system, rising); err != nil {
		return fmt.Errorf("%s: schedule: %w", t.subject, err)
	}
	before := arrivals.Summary().Arrived
	arrivals.Begin()
	if err := t.meters.start(ctx); err != nil {
		return err
	}
	halfway := t.interrupt(load)
	next, err := harness.Offer(ctx, t.system, load)
	if err := errors.Join(err, <-halfway); err != nil {
		return fmt.Errorf("%s: schedule: %w", t.subject, err)
	}
	arrivals.End()
	if err := t.meters.stop(ctx); err != nil {
		return err
	}
	n, done := next-first, arrivals.Summary().Arrived-before
	waiting, cancel := context.WithTimeout(ctx, load.To+t.patience)
	defer cancel()
	if err := arrivals.Await(waiting, n); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	addLateness(s, t.subject, arrivals, n)
	if t.halfway != nil {
		s.Add(t.subject, redelivered, float64(arrivals.Summary().Redelivered))
	}
	if t.counted {
		s.Add(t.subject, arrivedRate, float64(done)/load.For.Seconds())
	}
	if len(t.meters) > 0 && done > 0 {
		t.meters.add(s, t.subject, done)
		t.meters.addSums(s, t.subject, done)
	}
	return ctx.Err()
}

// interrupt calls halfway in the middle of a load that begins now, and passes on its error.
func (t trial) interrupt(load harness.Load) <-chan error {
	ended := make(chan error, 1)
	if t.halfway == nil {
		ended <- nil
	} else {
		time.AfterFunc(load.For/2, func() { ended <- t.halfway() })
	}
	return ended
}

// warm lets the system deliver a few tasks.
func warm(ctx context.Context, r *harness.Run, system harness.Scheduler, queue string) error {
	arrivals, stop, err := r.Consume(ctx, queue)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n := range warmUp {
		if err := system.Schedule(ctx, harness.Tasks(n, n+1, time.Now())); err != nil {
			return err
		}
	}
	return arrivals.Await(ctx, warmUp)
}

func addLateness(s *Results, subject string, arrivals *harness.Arrivals, n int) {
	if arrivals.Counted() > 0 {
		for _, p := range []struct {
			name    string
			percent float64
		}{{p50, 50}, {p99, 99}, {"p99.9 ms", 99.9}, {maxLate, 100}} {
			s.Add(subject, p.name, arrivals.Percentile(p.percent))
		}
	}
	sum := arrivals.Summary()
	s.Add(subject, "tasks", float64(n))
	s.Add(subject, early, float64(sum.Early))
	s.Add(subject, "twice", float64(sum.Repeated))
	s.Add(subject, notArrived, float64(n-sum.Arrived))
}
