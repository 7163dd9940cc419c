package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	rawPipeline = "raw: pipeline of ZADD and HSET"
	rawVariadic = "raw: one ZADD and one HSET a batch"
)

func scheduleMany() Measure {
	return Measure{
		Name: "schedule-many", Title: "ScheduleMany in batches of 500, one client",
		Goals: []report.Goal{{Subject: duefleet, Name: perSecond, Over: rawPipeline, AtLeast: 0.8}},
		Notes: []string{"Raw: the same IDs, due times and payloads to the same number of sorted sets and hashes, over the same client library; nothing is checked and nothing can be repeated safely"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			const batch = 500
			return storing(ctx, r, s, r.Size(200_000), batch, 1, map[string]store{
				duefleet: f.Schedule, rawPipeline: raw{r.Redis.Client}.pipeline, rawVariadic: raw{r.Redis.Client}.variadic,
			})
		},
	}
}

func scheduleOne() Measure {
	return Measure{
		Name: "schedule-one", Title: "Schedule one by one from 16 goroutines",
		Goals: []report.Goal{{Subject: duefleet, Name: perSecond, Over: rawPipeline, AtLeast: 0.8}},
		Notes: []string{"Raw: a pipeline of one ZADD and one HSET for each task, from 16 goroutines too"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			const goroutines = 16
			return storing(ctx, r, s, r.Size(100_000), 1, goroutines, map[string]store{
				duefleet: f.Schedule, rawPipeline: raw{r.Redis.Client}.pipeline,
			})
		},
	}
}

// scheduleOnly is a fleet whose topic is known and whose scanners are gone.
func scheduleOnly(ctx context.Context, r *harness.Run) (*harness.Fleet, error) {
	f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: 1})
	if err != nil {
		return nil, err
	}
	return f, f.Stop()
}

// store stores a batch.
type store func(context.Context, []harness.Task) error

// storing measures every way to store n tasks that are due in an hour, each on
// an empty Redis.
func storing(ctx context.Context, r *harness.Run, s *Results, n, batch, goroutines int, ways map[string]store) error {
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	tasks := harness.Tasks(0, n, due)
	for _, subject := range []string{rawPipeline, duefleet, rawVariadic} {
		way, ok := ways[subject]
		if !ok {
			continue
		}
		if err := way(ctx, harness.Tasks(n, n+batch, due)); err != nil { // connections and scripts
			return fmt.Errorf("%s: %w", subject, err)
		}
		before, err := r.Redis.CPU(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := each(ctx, tasks, batch, goroutines, way); err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		took := time.Since(begin)
		after, err := r.Redis.CPU(ctx)
		if err != nil {
			return err
		}
		s.Add(subject, perSecond, float64(n)/took.Seconds())
		s.Add(subject, "Redis µs/task", micros(after-before, n))
		if err := empty(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the tasks and nothing else.
func empty(ctx context.Context, r *harness.Run) error {
	for i := range rawShards {
		for _, key := range []string{rawKey("due", i), rawKey("task", i), fleetKey("due", i), fleetKey("task", i)} {
			if err := r.Redis.Client.Del(ctx, key).Err(); err != nil {
				return err
			}
		}
	}
	return r.Redis.Quiet(ctx)
}

// each hands out batches to goroutines.
func each(ctx context.Context, tasks []harness.Task, batch, goroutines int, way store) error {
	g, ctx := errgroup.WithContext(ctx)
	share := (len(tasks) + goroutines - 1) / goroutines
	for from := 0; from < len(tasks); from += share {
		mine := tasks[from:min(from+share, len(tasks))]
		g.Go(func() error {
			for at := 0; at < len(mine); at += batch {
				if err := way(ctx, mine[at:min(at+batch, len(mine))]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// raw stores tasks without anything around it: as many sorted sets and hashes as
// duefleet has shards.
type raw struct{ rdb *redis.Client }

const rawShards = 4

func rawKey(kind string, n int) string   { return fmt.Sprintf("raw:%s:%d", kind, n) }
func fleetKey(kind string, n int) string { return fmt.Sprintf("duefleet:%s:{orders:%d}", kind, n) }

// pipeline sends one ZADD and one HSET for each task.
func (w raw) pipeline(ctx context.Context, tasks []harness.Task) error {
	pipe := w.rdb.Pipeline()
	for _, t := range tasks {
		id := t.ID()
		n := shard.Place(id, rawShards)
		pipe.ZAdd(ctx, rawKey("due", n), redis.Z{Score: float64(t.Due.UnixMilli()), Member: id})
		pipe.HSet(ctx, rawKey("task", n), id, t.Payload)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// variadic sends one ZADD and one HSET for each shard.
func (w raw) variadic(ctx context.Context, tasks []harness.Task) error {
	var scores [rawShards][]redis.Z
	var records [rawShards][]any
	for _, t := range tasks {
		id := t.ID()
		n := shard.Place(id, rawShards)
		scores[n] = append(scores[n], redis.Z{Score: float64(t.Due.UnixMilli()), Member: id})
		records[n] = append(records[n], id, t.Payload)
	}
	pipe := w.rdb.Pipeline()
	for n := range rawShards {
		if len(scores[n]) > 0 {
			pipe.ZAdd(ctx, rawKey("due", n), scores[n]...)
			pipe.HSet(ctx, rawKey("task", n), records[n]...)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// take removes what is due, in batches, in plain commands: no leases, no
// scripts, nothing safe against a crash.
func (w raw) take(ctx context.Context, batch int64) error {
	for n := range rawShards {
		for {
			ids, err := w.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
				Key: rawKey("due", n), ByScore: true, Start: "0", Stop: "+inf", Count: batch,
			}).Result()
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			pipe := w.rdb.Pipeline()
			pipe.HMGet(ctx, rawKey("task", n), ids...)
			pipe.ZRem(ctx, rawKey("due", n), anys(ids)...)
			pipe.HDel(ctx, rawKey("task", n), ids...)
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func anys(ids []string) []any {
	all := make([]any, len(ids))
	for i, id := range ids {
		all[i] = id
	}
	return all
}
