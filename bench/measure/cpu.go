package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	redisStore = "store µs/task"
	redisRest  = "deliver µs/task"
	redisBoth  = "together µs/task"
)

func cpu() Measure {
	return Measure{
		Name: "redis-cpu", Title: "Redis CPU a task, schedule to settle, batches of 500",
		Goals: []report.Goal{{Subject: duefleet, Name: redisBoth, AtMost: 8}},
		Notes: []string{
			"Main thread, user and system, by INFO cpu; the append-only file is on",
			"Raw: one ZADD and one HSET a batch, then a range, HMGET, ZREM and HDEL a batch, with no lease and nothing safe to repeat",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(200_000)
			if err := rawCPU(ctx, r, s, n); err != nil {
				return err
			}
			f, err := r.StartFleet(ctx, harness.FleetConfig{Topic: map[string]any{"batch": 500}})
			if err != nil {
				return err
			}
			return fleetCPU(ctx, r, f, s, duefleet, 0, n, 0)
		},
	}
}

// fleetCPU adds what n tasks cost Redis, with left others stored.
func fleetCPU(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results, subject string, from, n int, left int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var before, stored time.Duration
	note := func(at *time.Duration) func() error {
		return func() (err error) {
			*at, err = r.Redis.CPU(ctx)
			return err
		}
	}
	rate, err := f.Drain(ctx, harness.Backlog{From: from, Tasks: n, Others: left, Begin: note(&before), AtDue: note(&stored)})
	if err != nil {
		return err
	}
	after, err := r.Redis.CPU(ctx)
	if err != nil {
		return err
	}
	s.Add(subject, redisStore, micros(stored-before, n))
	s.Add(subject, redisRest, micros(after-stored, n))
	s.Add(subject, redisBoth, micros(after-before, n))
	s.Add(subject, perSecond, rate)
	return nil
}

func rawCPU(ctx context.Context, r *harness.Run, s *Results, n int) error {
	const batch, subject = 500, "raw: plain commands in batches"
	w := raw{r.Redis.Client}
	tasks := harness.Tasks(0, n, time.Now())
	if err := w.variadic(ctx, tasks[:batch]); err != nil {
		return err
	}
	if err := w.take(ctx, batch); err != nil {
		return err
	}
	var at [3]time.Duration
	for i, do := range []func() error{
		func() error { return nil },
		func() error { return each(ctx, tasks, batch, 1, w.variadic) },
		func() error { return w.take(ctx, batch) },
	} {
		err := do()
		if err != nil {
			return err
		}
		if at[i], err = r.Redis.CPU(ctx); err != nil {
			return err
		}
	}
	s.Add(subject, redisStore, micros(at[1]-at[0], n))
	s.Add(subject, redisRest, micros(at[2]-at[1], n))
	s.Add(subject, redisBoth, micros(at[2]-at[0], n))
	return nil
}
