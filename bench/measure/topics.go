package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
)

func topics() Measure {
	const many = "duefleet, 100 topics"
	load := harness.Load{Rate: 1000, For: 10 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
	return Measure{
		Name: "topics", Title: "100 topics, Poisson 10/s each, M = 4 each, 3 scanners", Takes: 43 * time.Second,
		Goals: complete(many),
		Notes: []string{
			"Idle figures are from before the load: % of one core, for all three scanners together and for Redis's main thread",
			"publish to consume is the same load without a delay; lateness-1000 is the same load in one topic",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := r.StartFleet(ctx, harness.FleetConfig{Topics: 100})
			if err != nil {
				return err
			}
			if err := harness.Sleep(ctx, r.Span(settling)); err != nil {
				return err
			}
			if err := resting(ctx, r, s, many, f.PIDs(), 10*time.Second); err != nil {
				return err
			}
			if err := fleetTrial(r, f, many).run(ctx, r, r.Load(load), s); err != nil {
				return err
			}
			if err := f.Stop(); err != nil {
				return err
			}
			return directLateness(harness.Classic, rawDirect)(ctx, r, r.Load(load), s)
		},
	}
}
