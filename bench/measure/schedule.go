package measure

import (
	"context"
	"errors"
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
	rawLua      = "raw: ZADD and HSET of each task, one Lua call a shard and batch"
)

func scheduleMany() Measure {
	return Measure{
		Name: "schedule-many", Title: "ScheduleMany in batches of 500 from 4 goroutines, one client", Takes: 4 * time.Second,
		Goals: []report.Goal{{Subject: duefleet, Name: perSecond, Over: rawLua, AtLeast: 0.8},
			{Subject: duefleet, Name: redisCost, AtMost: 7.5}},
		Notes: []string{"Raw: the same IDs, due times and payloads to the same number of sorted sets and hashes, over the " +
			"same client library. Nothing is checked, and nothing can be repeated safely"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			const batch, goroutines = 500, 4
			w := raw{r.Redis.Client}
			return storing(ctx, r, s, r.Size(200_000), batch, goroutines, []way{
				{rawPipeline, w.pipeline}, {duefleet, f.Schedule}, {rawLua, w.lua}, {rawVariadic, w.variadic},
			})
		},
	}
}

func scheduleOne() Measure {
	return Measure{
		Name: "schedule-one", Title: "Schedule one by one from 16 goroutines", Takes: 4 * time.Second,
		Goals: []report.Goal{{Subject: duefleet, Name: perSecond, Over: rawPipeline, AtLeast: 0.75},
			{Subject: duefleet, Name: redisCost, AtMost: 25}},
		Notes: []string{"Raw: a pipeline of one ZADD and one HSET for each task, from 16 goroutines too"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, err := scheduleOnly(ctx, r)
			if err != nil {
				return err
			}
			const goroutines = 16
			return storing(ctx, r, s, r.Size(60_000), 1, goroutines, []way{{rawPipeline, raw{r.Redis.Client}.pipeline},
				{duefleet, f.Schedule}})
		},
	}
}

// scheduleOnly returns a fleet whose scanners have stopped. They ran before, because a
// client can schedule only tasks of a topic that a scanner has made known.
func scheduleOnly(ctx context.Context, r *harness.Run) (*harness.Fleet, error) {
	f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: 1})
	if err != nil {
		return nil, err
	}
	return f, f.Stop()
}

// store stores a batch of tasks.
type store func(context.Context, []harness.Task) error

// way is one way of storing tasks.
type way struct {
	subject string
	store   store
}

// storing measures every way of storing n tasks that are due in an hour, each with an
// empty Redis.
func storing(ctx context.Context, r *harness.Run, s *Results, n, batch, goroutines int, ways []way) error {
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	tasks := harness.Tasks(0, n, due)
	for _, w := range ways {
		// make connections and load scripts first
		if err := each(ctx, harness.Tasks(n, n+batch*goroutines, due), batch, goroutines, w.store); err != nil {
			return fmt.Errorf("%s: %w", w.subject, err)
		}
		used := meters{redisMain(r), ourselves()}
		if err := used.start(ctx); err != nil {
			return err
		}
		begin := time.Now()
		if err := each(ctx, tasks, batch, goroutines, w.store); err != nil {
			return fmt.Errorf("%s: %w", w.subject, err)
		}
		took := time.Since(begin)
		if err := used.stop(ctx); err != nil {
			return err
		}
		s.Add(w.subject, perSecond, float64(n)/took.Seconds())
		s.Add(w.subject, redisCost, micros(used[0].used, n))
		s.Add(w.subject, "producer µs/task", micros(used[1].used, n))
		if err := empty(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// empty deletes the tasks and nothing else.
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

// each splits the tasks among goroutines, which pass them to way in batches.
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

// raw stores tasks in the simplest way: in as many sorted sets and hashes as duefleet has
// shards.
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

// storeScript's arguments are the due time, the ID and the payload of each task.
const storeScript = `
for i = 1, #ARGV, 3 do
  redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('HSET', KEYS[2], ARGV[i + 1], ARGV[i + 2])
end`

// lua calls a script once for each shard. No store that uses a script can do less.
func (w raw) lua(ctx context.Context, tasks []harness.Task) error {
	var args [rawShards][]any
	for _, t := range tasks {
		id := t.ID()
		n := shard.Place(id, rawShards)
		args[n] = append(args[n], t.Due.UnixMilli(), id, t.Payload)
	}
	script := redis.NewScript(storeScript)
	send := func() error {
		pipe := w.rdb.Pipeline()
		for n := range rawShards {
			if len(args[n]) > 0 {
				script.EvalSha(ctx, pipe, []string{rawKey("due", n), rawKey("task", n)}, args[n]...)
			}
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	err := send()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = script.Load(ctx, w.rdb).Err(); err == nil {
			err = send()
		}
	}
	if errors.Is(err, redis.Nil) { // the script returns nothing
		return nil
	}
	return err
}

// take deletes due tasks in batches with plain commands: without leases, without scripts,
// and not safe against a crash.
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
