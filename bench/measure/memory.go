package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const bytesPerTask = "bytes/task"

func memory() Measure {
	return Measure{
		Name: "memory", Title: "Redis memory of a pending task, ID of 18 bytes, payload of 200",
		Goals: []report.Goal{{Subject: duefleet, Name: bytesPerTask, AtMost: 430}},
		Notes: []string{"Growth of used_memory by 200,000 tasks, payload included"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			n := r.Size(200_000)
			for _, way := range []struct {
				subject string
				store   store
			}{{duefleet, f.Schedule}, {"raw: ZADD and HSET", raw{r.Redis.Client}.variadic}} {
				if err := grown(ctx, r, s, way.subject, way.store, n); err != nil {
					return err
				}
				if err := empty(ctx, r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// grown adds how much Redis grew by n pending tasks.
func grown(ctx context.Context, r *harness.Run, s *Results, subject string, way store, n int) error {
	return grownBy(ctx, r, s, subject, way, r.Redis.Memory, n)
}

// rest is after how long Redis has written its file's buffer and shrunk those of
// clients, which take 16 KB each when they are new.
const rest = 6 * time.Second

// grownBy adds how much some memory grew by n pending tasks.
func grownBy(ctx context.Context, r *harness.Run, s *Results, subject string, way store, of func(context.Context) (int64, error), n int) error {
	const batch = 500
	due := time.Now().Add(time.Hour)
	if err := way(ctx, harness.Tasks(n, n+1, due)); err != nil { // scripts and keys
		return err
	}
	if err := harness.Sleep(ctx, rest); err != nil {
		return err
	}
	before, err := of(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, harness.Tasks(0, n, due), batch, 1, way); err != nil {
		return err
	}
	if err := r.Redis.Quiet(ctx); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, rest); err != nil {
		return err
	}
	after, err := of(ctx)
	if err != nil {
		return err
	}
	s.Add(subject, bytesPerTask, float64(after-before)/float64(n))
	return nil
}
