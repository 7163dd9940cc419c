package measure

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/peers"
	"github.com/duefleet/duefleet/bench/report"
)

// These are the columns of lateness.
const (
	p50        = "p50 ms"
	p99        = "p99 ms"
	maxLate    = "max ms"
	early      = "early"
	notArrived = "not arrived"
)

const (
	onQuorum     = "duefleet, quorum queue"
	rawDirect    = "raw: publish to consume"
	directQuorum = "raw: publish to consume, quorum queue"
)

// latenessOf puts a load on one subject and adds the results.
type latenessOf func(context.Context, *harness.Run, harness.Load, *Results) error

// both returns duefleet and the raw limit to compare it with, on both queue types.
func both() []latenessOf {
	return []latenessOf{
		fleetLateness(harness.Classic, duefleet), directLateness(harness.Classic, rawDirect),
		fleetLateness(harness.Quorum, onQuorum), directLateness(harness.Quorum, directQuorum),
	}
}

func latenessRun(load harness.Load, subjects ...latenessOf) func(context.Context, *harness.Run, *Results) error {
	return func(ctx context.Context, r *harness.Run, s *Results) error {
		for _, measure := range subjects {
			if err := measure(ctx, r, r.Load(load), s); err != nil {
				return err
			}
		}
		return nil
	}
}

// near returns goals for the lateness of subject. raw is the same load without a delay,
// which has only the time that the broker and the consumer need.
func near(subject, raw string) []report.Goal {
	return append([]report.Goal{
		{Subject: subject, Name: p50, Over: raw, AtMostMore: 1},
		{Subject: subject, Name: p99, Over: raw, AtMostMore: 2.5},
	}, complete(subject)...)
}

// complete returns the goals that every task arrives and none is early.
func complete(subject string) []report.Goal {
	return []report.Goal{{Subject: subject, Name: early, None: true}, {Subject: subject, Name: notArrived, None: true}}
}

// within returns goals that limit some figures.
func within(subject string, bounds ...report.Value) []report.Goal {
	var goals []report.Goal
	for _, b := range bounds {
		goals = append(goals, report.Goal{Subject: subject, Name: b.Name, AtMost: b.Value})
	}
	return goals
}

func lateness() Measure {
	load := harness.Load{Rate: 1000, For: 10 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
	affordable := []report.Value{{Name: redisCost, Value: 150}, {Name: outsideRedis, Value: 350}}
	var goals []report.Goal
	goals = append(goals, near(duefleet, rawDirect)...)
	goals = append(goals, near(onQuorum, directQuorum)...)
	goals = append(goals, within(duefleet, affordable...)...)
	goals = append(goals, within(onQuorum, affordable...)...)
	return Measure{
		Name: "lateness-1000", Title: "Poisson 1,000/s, delays 0.2 to 5 s", Takes: 55 * time.Second,
		Goals: goals, Run: latenessRun(load, both()...),
		Notes: []string{
			"Lateness is the consumer's clock minus due, on the same machine. Early and repeated messages are counted, and " +
				"are in no percentile",
			"publish to consume is the same load without a delay: each message is published and confirmed when it comes, and " +
				"late from then on. It is the time of the broker and the consumer",
			"Columns of µs/task are processor time for each task that arrived. They count from when as many tasks are due as " +
				"are scheduled, until the last one is scheduled. Redis is its main thread",
		},
	}
}

func latenessShort() Measure {
	load := harness.Load{Rate: 200, For: 8 * time.Second, From: time.Millisecond, To: 50 * time.Millisecond}
	return Measure{
		Name: "lateness-short", Title: "Poisson 200/s, delays 1 to 50 ms", Takes: 17 * time.Second,
		Goals: near(duefleet, rawDirect), Run: latenessRun(load, both()[:2]...),
		Notes: []string{"A task whose delay is over before Redis has stored it is late from then on"},
	}
}

func lateness5000() Measure {
	load := harness.Load{Rate: 5000, For: 6 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
	bounds := []report.Value{{Name: p99, Value: 15}, {Name: allCost, Value: 250}, {Name: redisCost, Value: 50},
		{Name: scannersCost, Value: 60}}
	var goals []report.Goal
	for _, subject := range []string{duefleet, onQuorum} {
		goals = append(goals, within(subject, bounds...)...)
		goals = append(goals, complete(subject)...)
	}
	return Measure{
		Name: "lateness-5000", Title: "Poisson 5,000/s, delays 0.2 to 5 s", Takes: 63 * time.Second, Once: true,
		Goals: goals, Run: latenessRun(load, append(both(), threadsLateness)...),
		Notes: []string{"The textbook's process is in the column of the scanners"},
	}
}

func fleetLateness(queueType, subject string) latenessOf {
	return func(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
		f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: queueType})
		if err != nil {
			return err
		}
		return errors.Join(fleetTrial(r, f, subject).run(ctx, r, load, s), f.Stop())
	}
}

// patience is how long a measure waits for tasks, unless it says otherwise.
const patience = 30 * time.Second

func fleetTrial(r *harness.Run, f *harness.Fleet, subject string) trial {
	return trial{
		subject: subject, system: f, queue: f.Queue, patience: patience,
		meters: meters{processes(scannersCost, f.PIDs()...), redisMain(r), broker(r), ourselves()},
	}
}

// threadsLateness measures the textbook design that can handle the load.
func threadsLateness(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
	return onePeer(ctx, r, peers.FourThreads(), func(sys system, subject, queue string) error {
		t := trial{
			subject: subject, system: sys, queue: queue, patience: patience,
			meters: meters{processes(scannersCost, sys.PIDs()...), redisMain(r), broker(r), ourselves()},
		}
		return t.run(ctx, r, load, s)
	})
}
