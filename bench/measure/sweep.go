package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/peers"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	// byRate separates the name of a chart's line from its rate.
	byRate = ", tasks/s: "
	// arrivedRate is how many tasks arrived in a second of the load.
	arrivedRate = "arrived/s"
	// keepsUp is the highest rate of the sweep that a system keeps up with.
	keepsUp = "keeps up with tasks/s"
	// allDue is the subject of the drain that the overload is compared with.
	allDue = "duefleet, all tasks due at one instant"
	// overload is the share of a rate below which a system doesn't keep up. Poisson's noise is
	// less than half of the rest.
	overload = 0.95
)

func sweepRates() []float64 { return []float64{1000, 2500, 5000, 7500, 10_000, 15_000, 20_000} }

// sweep raises the rate of one topic until each system is overloaded.
func sweep() Measure {
	threads := peers.FourThreads()
	return Measure{
		Name: "sweep", Title: "Poisson 1,000/s to overload, delays 0.2 to 1 s, one topic", Takes: 120 * time.Second,
		Once:  true,
		Goals: []report.Goal{{Subject: duefleet, Name: keepsUp, Over: threads.Name, AtLeast: 1}},
		Notes: []string{
			"A system keeps up with a rate if at least 95% of it arrive per second while the load lasts. No higher rate is " +
				"tried after one that it doesn't keep up with",
			"The textbook's process is in the column of the scanners",
			"At overload tasks queue up, and batches grow as in a drain. Compare the scanners' µs/task at the last rate with " +
				"the row of tasks that are due at one instant. That row leaves out what it costs Redis to store a task",
		},
		Charts: []report.Chart{
			{File: "sweep-p99.svg", Title: "Lateness at the consumer, 99th percentile", Name: p99, Split: byRate, X: "tasks/s"},
			{File: "sweep-cost.svg", Title: "Processor time of all parts", Name: allCost, Split: byRate, X: "tasks/s"},
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := rising(s, duefleet, func(load harness.Load, subject string) error {
				if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
					return err
				}
				f, err := r.StartFleet(ctx, harness.FleetConfig{})
				if err != nil {
					return err
				}
				return errors.Join(swept(r, f, f.Queue, subject).run(ctx, r, r.Load(load), s), f.Stop(), r.DeleteQueue(f.Queue))
			}); err != nil {
				return err
			}
			if err := overloaded(ctx, r, s); err != nil {
				return err
			}
			return rising(s, threads.Name, func(load harness.Load, subject string) error {
				return onePeer(ctx, r, threads, func(sys system, _, queue string) error {
					return swept(r, sys, queue, subject).run(ctx, r, r.Load(load), s)
				})
			})
		},
	}
}

// overloaded measures what a task costs if all are due at once.
func overloaded(ctx context.Context, r *harness.Run, s *Results) error {
	if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	f, err := r.StartFleet(ctx, harness.FleetConfig{})
	if err != nil {
		return err
	}
	return errors.Join(drained(ctx, r, f, s, allDue, harness.Backlog{Tasks: r.Size(40_000)}), f.Stop(),
		r.DeleteQueue(f.Queue))
}

// swept is the trial of one rate.
func swept(r *harness.Run, sys system, queue, subject string) trial {
	return trial{
		subject: subject, system: sys, queue: queue, patience: patience, counted: true,
		meters: meters{processes(scannersCost, sys.PIDs()...), redisMain(r), broker(r), ourselves()},
	}
}

// rising tries one rate after the other on a system, until it doesn't keep up.
func rising(s *Results, name string, try func(load harness.Load, subject string) error) error {
	kept := 0.0
	for _, rate := range sweepRates() {
		subject := fmt.Sprintf("%s%s%.0f", name, byRate, rate)
		load := harness.Load{Rate: rate, For: 4 * time.Second, From: 200 * time.Millisecond, To: time.Second}
		if err := try(load, subject); err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		i := slices.IndexFunc(s.Values, func(v report.Value) bool { return v.Subject == subject && v.Name == arrivedRate })
		if i < 0 || s.Values[i].Value < overload*rate {
			break
		}
		kept = rate
	}
	s.Add(name, keepsUp, kept)
	return nil
}
