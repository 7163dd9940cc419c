package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

// In this measure's subjects, these texts separate the name of a chart's line from the
// number on its axis.
const (
	byShards   = ", M = "
	byScanners = ", scanners: "
)

func scale() Measure {
	shards := func(file, title, name string) report.Chart {
		return report.Chart{File: file, Title: title, Name: name, Split: byShards, X: "shards (M)"}
	}
	scanners := func(file, title, name string) report.Chart {
		return report.Chart{File: file, Title: title, Name: name, Split: byScanners, X: "scanners"}
	}
	return Measure{
		Name: "scale", Title: "M = 1 to 64, and 1 to 8 scanners", Takes: 95 * time.Second, Once: true,
		Notes: []string{
			"tasks/s: 20,000 due at one instant into a classic queue. Lateness: Poisson 500/s, delays 0.2 to 2 s",
			"All on one machine: more scanners take their processor time from the broker. The points are each other's limit",
		},
		Charts: []report.Chart{
			shards("scale-shards-throughput.svg", "Draining a backlog", perSecond),
			shards("scale-shards-p99.svg", "Lateness at the consumer, 99th percentile", p99),
			scanners("scale-scanners-throughput.svg", "Draining a backlog", perSecond),
			scanners("scale-scanners-p99.svg", "Lateness at the consumer, 99th percentile", p99),
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := bare(ctx, r, s, harness.Classic, r.Size(20_000), harness.Same); err != nil {
				return err
			}
			for _, p := range points() {
				if err := scaled(ctx, r, s, p); err != nil {
					return fmt.Errorf("%s: %w", p.subject, err)
				}
			}
			return nil
		},
	}
}

// point is one point of the charts.
type point struct {
	subject          string
	scanners, shards int
}

// points returns two lines: three scanners with different shard counts, and four shards
// with different numbers of scanners.
func points() []point {
	const scanners, shards = 3, 4
	var all []point
	for _, m := range []int{1, 8, 64} {
		all = append(all, point{fmt.Sprintf("scanners: %d%s%d", scanners, byShards, m), scanners, m})
	}
	for _, n := range []int{1, 2, 4, 8} {
		all = append(all, point{fmt.Sprintf("M = %d%s%d", shards, byScanners, n), n, shards})
	}
	return all
}

func scaled(ctx context.Context, r *harness.Run, s *Results, p point) error {
	if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: p.scanners, Shards: p.shards})
	if err != nil {
		return err
	}
	load := harness.Load{Rate: 500, For: 5 * time.Second, From: 200 * time.Millisecond, To: 2 * time.Second}
	t := trial{subject: p.subject, system: f, queue: f.Queue, patience: patience}
	if err := t.run(ctx, r, r.Load(load), s); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	rate, err := f.Drain(waiting, harness.Backlog{From: 1_000_000, Tasks: r.Size(20_000)})
	if err != nil {
		return err
	}
	s.Add(p.subject, perSecond, rate)
	if err := f.Stop(); err != nil {
		return err
	}
	return r.DeleteQueue(f.Queue) // a full queue costs the broker CPU time
}
