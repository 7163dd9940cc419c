package measure

import (
	"context"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

func instant(queueType string) Measure {
	return Measure{
		Name: "instant-" + queueType, Title: "1,000,000 due at one instant, into a durable " + queueType + " queue",
		Goals: []report.Goal{
			{Subject: duefleet, Name: perSecond, Over: bareOne, AtLeast: 0.9},
			{Subject: duefleet, Name: "scanner MB", AtMost: 150},
			{Subject: duefleet, Name: "redelivered", None: true},
			{Subject: duefleet, Name: "faults", None: true},
		},
		Notes: []string{
			"MB: the most resident memory of the largest scanner. Redelivered: tasks whose lease ran out",
			"The bare publisher sends 200,000 messages",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := bare(ctx, r, s, queueType, r.Size(200_000)); err != nil {
				return err
			}
			f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: queueType})
			if err != nil {
				return err
			}
			if err := drained(ctx, r, f, s, r.Size(1_000_000)); err != nil {
				return err
			}
			return largest(ctx, f, s)
		},
	}
}

// largest adds the memory of the largest scanner and what they redelivered.
func largest(ctx context.Context, f *harness.Fleet, s *Results) error {
	var most int64
	for _, pid := range f.PIDs() {
		peak, err := harness.PeakRSS(pid)
		if err != nil {
			return err
		}
		most = max(most, peak)
	}
	s.Add(duefleet, "scanner MB", float64(most)/1e6)
	again, err := f.Metric(ctx, "duefleet_redelivered_total")
	s.Add(duefleet, "redelivered", again)
	return err
}
