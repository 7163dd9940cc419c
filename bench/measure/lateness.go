package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	poisson   = 60 * time.Second
	onQuorum  = "duefleet, quorum queue"
	rawDirect = "raw: publish to consume"
)

// punctual are the goals of a lateness measure.
func punctual(p50, p99 float64) []report.Goal {
	goals := []report.Goal{{Subject: duefleet, Name: "p99 ms", AtMost: p99}, {Subject: duefleet, Name: "early", None: true}}
	if p50 > 0 {
		goals = append([]report.Goal{{Subject: duefleet, Name: "p50 ms", AtMost: p50}}, goals...)
	}
	return goals
}

func lateness() Measure {
	load := harness.Load{Rate: 1000, For: poisson, From: 200 * time.Millisecond, To: 5 * time.Second}
	return Measure{
		Name: "lateness-1000", Title: "Poisson 1,000/s, delays 0.2 to 5 s",
		Goals: punctual(2, 5), Run: latenessRun(load, true),
		Notes: []string{
			"Lateness is the consumer's clock minus due, of the same machine; what came early or twice is counted and stands in no percentile",
			"publish to consume is the same load, published and confirmed when it comes and late from then on: what the broker and the consumer take",
		},
	}
}

func latenessShort() Measure {
	load := harness.Load{Rate: 200, For: poisson, From: time.Millisecond, To: 50 * time.Millisecond}
	return Measure{
		Name: "lateness-short", Title: "Poisson 200/s, delays 1 to 50 ms",
		Goals: punctual(2, 5), Run: latenessRun(load, false),
		Notes: []string{"A task whose delay is over before Redis has stored it is late from then on"},
	}
}

func lateness5000() Measure {
	load := harness.Load{Rate: 5000, For: poisson / 2, From: 200 * time.Millisecond, To: 5 * time.Second}
	return Measure{
		Name: "lateness-5000", Title: "Poisson 5,000/s, delays 0.2 to 5 s",
		Goals: punctual(0, 15), Run: latenessRun(load, false),
	}
}

// latenessRun measures duefleet and the raw limits with one load. More adds the
// quorum queue and RabbitMQ's own fixed delay.
func latenessRun(load harness.Load, more bool) func(context.Context, *harness.Run, *Results) error {
	return func(ctx context.Context, r *harness.Run, s *Results) error {
		load.For = r.Span(load.For)
		subjects := []func(context.Context, *harness.Run, harness.Load, *Results) error{fleetLateness(harness.Classic, duefleet), directLateness}
		if more {
			subjects = append(subjects, fleetLateness(harness.Quorum, onQuorum), fixedDelay)
		}
		for _, measure := range subjects {
			if err := measure(ctx, r, load, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func fleetLateness(queueType, subject string) func(context.Context, *harness.Run, harness.Load, *Results) error {
	return func(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
		f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: queueType})
		if err != nil {
			return err
		}
		if err := offered(ctx, r, f, f.Queue, load, s, subject); err != nil {
			return err
		}
		return f.Stop()
	}
}

// warmUp is how many tasks make the connections and load the scripts before
// anything counts.
const warmUp = 64

// patience is how long tasks are waited for after the last was due.
const patience = 30 * time.Second

// offered puts a load on a system and adds what became of it.
func offered(ctx context.Context, r *harness.Run, system harness.Scheduler, queue string, load harness.Load, s *Results, subject string) error {
	if err := warm(ctx, r, system, queue); err != nil {
		return fmt.Errorf("%s: warm up: %w", subject, err)
	}
	arrivals, stop, err := r.Consume(ctx, queue)
	if err != nil {
		return err
	}
	defer stop()
	n, err := harness.Offer(ctx, system, load)
	if err != nil {
		return fmt.Errorf("%s: schedule: %w", subject, err)
	}
	waiting, cancel := context.WithTimeout(ctx, load.To+patience)
	defer cancel()
	if err := arrivals.Await(waiting, n); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	addLateness(s, subject, arrivals, n)
	return ctx.Err()
}

// warm has a few tasks delivered.
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
	sum := arrivals.Summary()
	if sum.Arrived > sum.Early {
		for _, p := range []struct {
			name    string
			percent float64
		}{{"p50 ms", 50}, {"p99 ms", 99}, {"p99.9 ms", 99.9}, {"max ms", 100}} {
			s.Add(subject, p.name, arrivals.Percentile(p.percent))
		}
	}
	s.Add(subject, "tasks", float64(n))
	s.Add(subject, "early", float64(sum.Early))
	s.Add(subject, "twice", float64(sum.Repeated))
	s.Add(subject, "not arrived", float64(n-sum.Arrived))
}
