package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
	"github.com/duefleet/duefleet/test/fleet"
)

// takeover kills a scanner in the middle of a load. Its shards wait for the next tick of others.
func takeover() Measure {
	const one, many, tick = "duefleet, 1 topic", "duefleet, 1,000 topics", 1000
	load := harness.Load{Rate: 400, For: 6 * time.Second, From: 200 * time.Millisecond, To: 2 * time.Second}
	return Measure{
		Name: "takeover", Title: "One scanner of three is killed under Poisson 400/s, delays 0.2 to 2 s",
		Takes: 28 * time.Second, Once: true,
		Goals: append(append(complete(one), complete(many)...), report.Goal{Subject: one, Name: maxLate, AtMost: tick},
			report.Goal{Subject: many, Name: maxLate, AtMost: tick}),
		Notes: []string{
			"The scanner gets SIGKILL after half of the time. A tick is 1 s, and the lease 5 s",
			"Redelivered: tasks that the dead scanner had claimed. They wait for its lease, and are in no percentile",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			for _, c := range []struct {
				subject string
				topics  int
			}{{one, 1}, {many, 1000}} {
				f, err := r.StartFleet(ctx, harness.FleetConfig{Topics: c.topics, Topic: fleet.Topic{"lease": "5s"}})
				if err != nil {
					return err
				}
				t := trial{subject: c.subject, system: f, queue: f.Queue, patience: patience, halfway: f.KillOne}
				if err := t.run(ctx, r, r.Load(load), s); err != nil {
					return err
				}
				if err := f.Stop(); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
