package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

// scaleSplit stands between the scanners and M in the subjects of this measure.
const scaleSplit = ", M = "

func scale() Measure {
	return Measure{
		Name: "scale", Title: "1 to 8 scanners, M = 1 to 64",
		Notes: []string{
			"tasks/s: 50,000 due at one instant into a classic queue; lateness: Poisson 500/s, delays 0.2 to 2 s",
			"All on one machine: more scanners take their processor time from the broker",
		},
		Charts: []report.Chart{
			{File: "scale-throughput.svg", Title: "Draining a backlog", Name: perSecond, Split: scaleSplit, X: "shards (M)"},
			{File: "scale-p50.svg", Title: "Lateness at the consumer, median", Name: "p50 ms", Split: scaleSplit, X: "shards (M)"},
			{File: "scale-p99.svg", Title: "Lateness at the consumer, 99th percentile", Name: "p99 ms", Split: scaleSplit, X: "shards (M)"},
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := bare(ctx, r, s, harness.Classic, r.Size(50_000)); err != nil {
				return err
			}
			for _, scanners := range []int{1, 2, 4, 8} {
				for _, shards := range []int{1, 4, 16, 64} {
					if err := scaled(ctx, r, s, scanners, shards); err != nil {
						return fmt.Errorf("scanners: %d, M = %d: %w", scanners, shards, err)
					}
				}
			}
			return nil
		},
	}
}

// scaled is one point of the charts.
func scaled(ctx context.Context, r *harness.Run, s *Results, scanners, shards int) error {
	if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: scanners, Shards: shards})
	if err != nil {
		return err
	}
	subject := fmt.Sprintf("scanners: %d%s%d", scanners, scaleSplit, shards)
	load := harness.Load{Rate: 500, For: r.Span(10 * time.Second), From: 200 * time.Millisecond, To: 2 * time.Second}
	if err := offered(ctx, r, f, f.Queue, load, s, subject); err != nil {
		return err
	}
	n := r.Size(50_000)
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	rate, err := f.Drain(waiting, harness.Backlog{From: 1_000_000, Tasks: n})
	if err != nil {
		return err
	}
	s.Add(subject, perSecond, rate)
	return f.Stop()
}
