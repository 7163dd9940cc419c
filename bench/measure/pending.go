package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const spread = "the dearest over the cheapest"

func pending() Measure {
	return Measure{
		Name: "pending", Title: "cost a task with 10,000, 1 and 5 million others pending",
		Goals: []report.Goal{{Subject: spread, Name: redisBoth, AtMost: 1.3}},
		// 5 million tasks rewrite the file several times while they are stored.
		Redis: []string{"--auto-aof-rewrite-percentage", "0"},
		Notes: []string{
			"50,000 tasks stored and delivered while the others are due in a day. The sizes are each other's limit",
			"Redis doesn't rewrite its append-only file meanwhile, which forks it and slows it at any size",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := r.StartFleet(ctx, harness.FleetConfig{})
			if err != nil {
				return err
			}
			return pendingSizes(ctx, r, f, s)
		},
	}
}

func pendingSizes(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results) error {
	n := r.Size(50_000)
	stored, number := 0, 10_000_000
	for _, size := range []int{10_000, 1_000_000, 5_000_000} {
		size = r.Size(size)
		if err := harness.Fill(ctx, f, stored, size, time.Now().Add(24*time.Hour)); err != nil {
			return err
		}
		stored = size
		// Past what Redis still has to do for the last of them.
		if err := harness.Sleep(ctx, 3*time.Second); err != nil {
			return err
		}
		subject := fmt.Sprintf("%d pending", size)
		if err := fleetCPU(ctx, r, f, s, subject, number, n, int64(stored)); err != nil {
			return err
		}
		number += n
	}
	least, most := extremes(s.Values, redisBoth)
	s.Add(spread, redisBoth, most/least)
	return nil
}

func extremes(values []report.Value, name string) (least, most float64) {
	for _, v := range values {
		if v.Name != name {
			continue
		}
		if least == 0 || v.Value < least {
			least = v.Value
		}
		most = max(most, v.Value)
	}
	return least, most
}
