package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const bytesPerTask = "bytes/task"

func memory() Measure {
	sizes := []int{20, 200, 1024, 4096}
	of := func(subject string, size int) string { return fmt.Sprintf("%s, payload of %d", subject, size) }
	const plain = "raw: ZADD and HSET"
	var goals []report.Goal
	for _, size := range sizes {
		goals = append(goals, report.Goal{Subject: of(duefleet, size), Name: bytesPerTask, Over: of(plain, size),
			AtMostMore: 32})
	}
	return Measure{
		Name: "memory", Title: "Redis memory of a pending task, ID of 18 bytes", Takes: 9 * time.Second,
		Goals: goals,
		Notes: []string{"Growth of used_memory_dataset by 100,000 tasks, payload included. Raw: one sorted set and one " +
			"hash a shard, as many shards"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			n := r.Size(100_000)
			for _, size := range sizes {
				for _, way := range []struct {
					subject string
					store   store
				}{{duefleet, f.Schedule}, {plain, raw{r.Redis.Client}.variadic}} {
					if err := grown(ctx, s, of(way.subject, size), way.store, r.Redis.Data, n, size); err != nil {
						return err
					}
					if err := empty(ctx, r); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

// grown stores n pending tasks and adds by how many bytes per task the result of `of`
// grows.
func grown(ctx context.Context, s *Results, subject string, way store, of func(context.Context) (int64, error), n,
	size int) error {
	const batch = 500
	due := time.Now().Add(time.Hour)
	if err := way(ctx, harness.Tasks(n, n+1, due)); err != nil { // make scripts and keys first
		return err
	}
	before, err := of(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, harness.SizedTasks(0, n, due, size), batch, 1, way); err != nil {
		return err
	}
	after, err := of(ctx)
	if err != nil {
		return err
	}
	s.Add(subject, bytesPerTask, float64(after-before)/float64(n))
	return nil
}
