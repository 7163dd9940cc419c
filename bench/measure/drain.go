package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	bareSame   = "raw: bare publisher of the same messages"
	bareNaked  = "raw: bare publisher of naked bodies"
	oneScanner = "duefleet, one scanner"
	perSecond  = "tasks/s"
	faults     = "faults"
)

func drain(queueType string, goals ...report.Goal) Measure {
	return Measure{
		Name: "drain-" + queueType, Title: "80,000 due tasks into a durable " + queueType + " queue", Takes: 26 * time.Second,
		Goals: append(goals,
			report.Goal{Subject: duefleet, Name: perSecond, Over: oneScanner, AtLeast: 1},
			report.Goal{Subject: duefleet, Name: faults, None: true},
			report.Goal{Subject: oneScanner, Name: faults, None: true}),
		Notes: []string{
			"The time runs from the due time, which is the same for all, until RabbitMQ has confirmed the last task and " +
				"Redis has removed it",
			"The bare publishers send to a queue of the same kind with amqp091-go and 2,000 unconfirmed messages, and store " +
				"nothing. Naked bodies have a delivery mode and no other property, and aren't mandatory",
			"faults: the difference between the messages in the queue and the tasks",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(80_000)
			if err := bare(ctx, r, s, queueType, n, harness.Same, harness.Naked); err != nil {
				return err
			}
			for _, fleet := range []struct {
				subject  string
				scanners int
			}{{duefleet, 3}, {oneScanner, 1}} {
				f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: queueType, Scanners: fleet.scanners})
				if err != nil {
					return err
				}
				if err := drained(ctx, r, f, s, fleet.subject, harness.Backlog{Tasks: n}); err != nil {
					return err
				}
				if err := f.Stop(); err != nil {
					return err
				}
				if err := r.DeleteQueue(f.Queue); err != nil { // a full queue costs the broker CPU time
					return err
				}
			}
			return nil
		},
	}
}

func bare(ctx context.Context, r *harness.Run, s *Results, queueType string, n int, shapes ...harness.Shape) error {
	for _, shape := range shapes {
		subject := bareSame
		if shape == harness.Naked {
			subject = bareNaked
		}
		used := meters{broker(r)}
		if err := used.start(ctx); err != nil {
			return err
		}
		rate, err := r.Bare(ctx, queueType, n, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		if err := used.stop(ctx); err != nil {
			return err
		}
		s.Add(subject, perSecond, rate)
		used.add(s, subject, n)
	}
	return nil
}

// drained lets the fleet deliver a backlog that is due at one instant, and adds the rate
// and the CPU costs.
func drained(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results, subject string,
	b harness.Backlog) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	used := meters{broker(r), processes(scannersCost, f.PIDs()...), redisMain(r)}
	b.AtDue = func() error { return used.start(ctx) }
	rate, err := f.Drain(ctx, b)
	if err != nil {
		return err
	}
	if err := used.stop(ctx); err != nil {
		return err
	}
	s.Add(subject, perSecond, rate)
	used.add(s, subject, b.Tasks)
	queued, err := r.AwaitQueued(ctx, f.Queue, b.Tasks)
	s.Add(subject, faults, float64(max(queued-b.Tasks, b.Tasks-queued)))
	return err
}
