package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	commandsShard = "commands/s a shard"
	innerShard    = "with those inside scripts"
	memberCPU     = "CPU % a process"
	redisCPU      = "Redis CPU %"
)

func idle() Measure {
	const shards, scanners = 64, 3
	return Measure{
		Name: "idle", Title: "nothing to do, M = 64, 3 scanners",
		Goals: []report.Goal{{Subject: duefleet, Name: commandsShard, AtMost: 3}, {Subject: duefleet, Name: memberCPU, AtMost: 1}},
		Notes: []string{
			"% of one core; the dearest scanner",
			"Commands as clients send them, a script being one, and as INFO commandstats counts them",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: scanners, Shards: shards})
			if err != nil {
				return err
			}
			if err := harness.Sleep(ctx, 5*time.Second); err != nil {
				return err
			}
			if err := resting(ctx, r, s, duefleet, f.PIDs(), shards); err != nil {
				return err
			}
			if err := f.Stop(); err != nil {
				return err
			}
			return resting(ctx, r, s, "raw: no scanner at all", nil, shards)
		},
	}
}

// resting adds what a system does while it has nothing to do, by itself and in
// Redis. Without pids its own processor time is left out; without shards
// commands are those of the whole system.
func resting(ctx context.Context, r *harness.Run, s *Results, subject string, pids []int, shards int) error {
	span := r.Span(30 * time.Second)
	used := make([]time.Duration, len(pids))
	var err error
	for i, pid := range pids {
		if used[i], err = harness.ProcessCPU(pid); err != nil {
			return err
		}
	}
	before, err := snapshot(ctx, r.Redis)
	if err != nil {
		return err
	}
	if err := harness.Sleep(ctx, span); err != nil {
		return err
	}
	after, err := snapshot(ctx, r.Redis)
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	var dearest time.Duration
	for i, pid := range pids {
		now, err := harness.ProcessCPU(pid)
		if err != nil {
			return err
		}
		dearest = max(dearest, now-used[i])
	}
	// Watching costs Redis more than the rest: not while its CPU is measured.
	sent, err := r.Redis.Sent(ctx, min(span, 10*time.Second))
	if err != nil {
		return fmt.Errorf("watch commands: %w", err)
	}
	inner := float64(after.commands-before.commands) / seconds
	if shards > 0 {
		s.Add(subject, commandsShard, sent/float64(shards))
		s.Add(subject, innerShard, inner/float64(shards))
	} else {
		s.Add(subject, "commands/s", sent)
		s.Add(subject, innerShard, inner)
	}
	if len(pids) > 0 {
		s.Add(subject, memberCPU, 100*dearest.Seconds()/seconds)
	}
	s.Add(subject, redisCPU, 100*(after.cpu-before.cpu).Seconds()/seconds)
	return nil
}

type moment struct {
	at       time.Time
	commands int64
	cpu      time.Duration
}

func snapshot(ctx context.Context, r *harness.Redis) (moment, error) {
	calls, err := r.Commands(ctx)
	if err != nil {
		return moment{}, err
	}
	cpu, err := r.CPU(ctx)
	return moment{time.Now(), harness.Total(calls), cpu}, err
}
