package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

func topics() Measure {
	const many = "duefleet, 1,000 topics"
	load := harness.Load{Rate: 1000, For: 10 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
	return Measure{
		Name: "topics", Title: "1,000 topics, Poisson 1/s each, M = 4 each, 3 scanners", Takes: 43 * time.Second, Once: true,
		Goals: append(complete(many), report.Goal{Subject: many, Name: p50, Over: rawDirect, AtMostMore: 1.5},
			report.Goal{Subject: many, Name: p99, Over: rawDirect, AtMostMore: 5}),
		Notes: []string{
			"The topics sleep before the load, so each wakes with its first task",
			"Memory is the resident set of the scanner that has most, after the load",
			"publish to consume is the same load without a delay; lateness-1000 is the same load in one topic",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := r.StartFleet(ctx, harness.FleetConfig{Topics: 1000})
			if err != nil {
				return err
			}
			if err := harness.Sleep(ctx, r.Span(settling)); err != nil {
				return err
			}
			if err := fleetTrial(r, f, many).run(ctx, r, r.Load(load), s); err != nil {
				return err
			}
			if err := addMost(f, harness.RSS, s, many, rss); err != nil {
				return err
			}
			if err := f.Stop(); err != nil {
				return err
			}
			return directLateness(harness.Classic, rawDirect)(ctx, r, r.Load(load), s)
		},
	}
}
