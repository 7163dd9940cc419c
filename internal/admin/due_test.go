package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestCountDue: a span has the tasks from its begin to before its end, in all shards. A
// shard of another type has none.
func TestCountDue(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 3)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	for i, due := range []time.Time{at, at.Add(time.Second), at.Add(2 * time.Second), at.Add(time.Minute)} {
		fixture.Store(t, topic, fixture.Entries(task.At(due), []byte("\x00a"), fmt.Sprint(i))...)
	}
	count := func(shards int) []DueSpan {
		t.Helper()
		spans := []DueSpan{{From: at, To: at.Add(2 * time.Second)}, {From: at.Add(2 * time.Second), To: at.Add(time.Hour)}}
		counted, err := CountDue(t.Context(), topic, shards, spans)
		check.OK(t, err)
		check.Equal(t, "counted shards", counted, shards)
		return spans
	}
	spans := count(3)
	check.Equal(t, "first", spans[0].Tasks, 2)
	check.Equal(t, "second", spans[1].Tasks, 2)
	check.OK(t, r.Client.Set(t.Context(), r.Prefix+":due:{orders:3}", "x", 0).Err())
	check.Equal(t, "first, with a shard of another type", count(4)[0].Tasks, 2)
}

// TestCountDueIsBounded: of very many shards it counts some, and estimates from them.
func TestCountDueIsBounded(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic := r.Orders()
	at := time.Now().Add(time.Hour)
	pipe := r.Client.Pipeline()
	for i := range 4000 {
		key := fmt.Sprintf("%s:due:{orders:%d}", r.Prefix, i)
		pipe.ZAdd(t.Context(), key, redis.Z{Score: float64(at.UnixMilli()), Member: "a"})
	}
	_, err := pipe.Exec(t.Context())
	check.OK(t, err)
	spans := make([]DueSpan, 32)
	for i := range spans {
		spans[i] = DueSpan{From: at, To: at.Add(time.Minute)}
	}
	counted, err := CountDue(t.Context(), topic, 4000, spans)
	check.OK(t, err)
	if counted*len(spans) > maxCounts || counted < 100 {
		t.Errorf("%d shards counted", counted)
	}
	check.Equal(t, "estimate", spans[31].Tasks, 4000)
}
