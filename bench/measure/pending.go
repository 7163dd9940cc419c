package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	rawBatches = "raw: plain commands in batches"
	spread     = "the dearest over the cheapest"
	redisStore = "Redis µs/task to store"
	redisRest  = "to deliver"
	redisBoth  = "together"
)

func pending() Measure {
	return Measure{
		Name: "pending", Title: "cost a task with 10,000, 1 and 5 million others pending", Takes: 48 * time.Second,
		Once:  true,
		Goals: []report.Goal{{Subject: spread, Name: redisBoth, AtMost: 1.3}},
		// Storing 5 million tasks would otherwise rewrite the file several times.
		Redis: []string{"--auto-aof-rewrite-percentage", "0"},
		Notes: []string{
			"30,000 tasks are stored and delivered in batches of 500 while the others are due in a day. The sizes are each " +
				"other's limit",
			"Raw: one ZADD and one HSET a batch, then a range, HMGET, ZREM and HDEL a batch. It has no lease, nothing is " +
				"safe to repeat, and nothing else is pending",
			"Redis doesn't rewrite its append-only file meanwhile: that forks it and slows it at any size",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := rawCPU(ctx, r, s, r.Size(30_000)); err != nil {
				return err
			}
			f, err := r.StartFleet(ctx, harness.FleetConfig{})
			if err != nil {
				return err
			}
			return pendingSizes(ctx, r, f, s)
		},
	}
}

func pendingSizes(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results) error {
	n := r.Size(30_000)
	stored, number := 0, 10_000_000
	for _, size := range []int{10_000, 1_000_000, 5_000_000} {
		size = r.Size(size)
		if err := harness.Fill(ctx, f, stored, size, time.Now().Add(24*time.Hour)); err != nil {
			return err
		}
		stored = size
		// Wait until Redis has finished its work for the last of them.
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

// fleetCPU adds Redis's CPU cost for storing and delivering n tasks, while left other
// tasks stay stored.
func fleetCPU(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results, subject string, from, n int,
	left int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var before, stored time.Duration
	note := func(at *time.Duration) func() error {
		return func() (err error) {
			*at, err = r.Redis.CPU(ctx)
			return err
		}
	}
	rate, err := f.Drain(ctx, harness.Backlog{From: from, Tasks: n, Others: left, Begin: note(&before),
		AtDue: note(&stored)})
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

// rawCPU adds Redis's CPU cost for storing and taking n tasks with plain commands.
func rawCPU(ctx context.Context, r *harness.Run, s *Results, n int) error {
	const batch = 500
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
	s.Add(rawBatches, redisStore, micros(at[1]-at[0], n))
	s.Add(rawBatches, redisRest, micros(at[2]-at[1], n))
	s.Add(rawBatches, redisBoth, micros(at[2]-at[0], n))
	return nil
}

// extremes returns the smallest and the largest value of a figure, without the raw
// subject.
func extremes(values []report.Value, name string) (least, most float64) {
	for _, v := range values {
		if v.Name != name || v.Subject == rawBatches {
			continue
		}
		if least == 0 || v.Value < least {
			least = v.Value
		}
		most = max(most, v.Value)
	}
	return least, most
}
