package measure

import (
	"context"
	"math"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

func rate() Measure {
	const limit = 500
	near := func(name string) report.Goal {
		return report.Goal{Subject: duefleet, Name: name, AtLeast: limit * 0.95, AtMost: limit * 1.05}
	}
	return Measure{
		Name: "rate", Title: "rate: 500 over three scanners", Takes: 9 * time.Second,
		Goals: []report.Goal{near("first second"), near("slowest second"), near("fastest second"), near("mean/s")},
		Notes: []string{"Arrivals are counted in whole seconds since the first one. The limit is the rate that was set. " +
			"The drain tables have the speed without a rate"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := r.StartFleet(ctx, harness.FleetConfig{Topic: map[string]any{"rate": limit}})
			if err != nil {
				return err
			}
			arrivals, stop, err := r.Consume(ctx, f.Queue)
			if err != nil {
				return err
			}
			defer stop()
			seconds := int(r.Span(6*time.Second) / time.Second)
			// One second more than is counted, so that the last one is complete.
			n := (seconds + 1) * limit
			if err := harness.Fill(ctx, f, 0, n, time.Now().Add(2*time.Second)); err != nil {
				return err
			}
			if err := arrivals.Await(ctx, n); err != nil {
				return err
			}
			addSeconds(s, arrivals, seconds)
			s.Add("the rate that was set", "mean/s", limit)
			return nil
		},
	}
}

func addSeconds(s *Results, arrivals *harness.Arrivals, seconds int) {
	slowest, fastest, total := math.MaxInt, 0, 0
	for i := range seconds {
		n := arrivals.Second(i)
		slowest, fastest, total = min(slowest, n), max(fastest, n), total+n
	}
	s.Add(duefleet, "first second", float64(arrivals.Second(0)))
	s.Add(duefleet, "slowest second", float64(slowest))
	s.Add(duefleet, "fastest second", float64(fastest))
	s.Add(duefleet, "mean/s", float64(total)/float64(seconds))
}
