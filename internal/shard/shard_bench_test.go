package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// The benchmarks count tasks: ns/op and allocs/op are per task, also if it travels in a
// batch.
const benchBatch = 500

func benchTask() *task.Task {
	return &task.Task{
		ContentType: "application/json", Headers: map[string]string{"tenant": "t-17", "traceparent": strings.Repeat("0", 55)},
		Payload: make([]byte, 200),
	}
}

func BenchmarkPlace(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Place("order-000000000017", 64)
	}
}

func BenchmarkEncodeBody(b *testing.B) {
	for name, t := range map[string]*task.Task{"bare": {Payload: make([]byte, 200)}, "headers": benchTask()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				EncodeBody(t)
			}
		})
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	for name, t := range map[string]*task.Task{"bare": {Payload: make([]byte, 200)}, "headers": benchTask()} {
		record := "\x10" + strings.Repeat("\x00", recordHead-1) + string(EncodeBody(t))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := DecodeRecord("orders", "order-000000000017", record)
				check.OK(b, err)
			}
		})
	}
}

// benchSandbox is one shard with a placement.
func benchSandbox(b *testing.B) (*Topic, Placement) {
	addr, prefix := servertest.Redis(b)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	b.Cleanup(func() { _ = rdb.Close() })
	store, err := New(rdb, prefix)
	check.OK(b, err)
	t := store.Topic("orders")
	p, err := t.Ensure(b.Context(), 1)
	check.OK(b, err)
	return t, p
}

func benchPut(b *testing.B, t *Topic, p Placement, from, to int) {
	put := Put{Op: NewOp(), Entries: make([]Entry, 0, to-from)}
	payload := body(strings.Repeat("x", 200))
	for n := from; n < to; n++ {
		put.Entries = append(put.Entries, Entry{ID: fmt.Sprintf("order-%012d", n), When: task.Now(), Body: payload})
	}
	notAfter, err := t.store.scripts.Deadline(b.Context())
	check.OK(b, err)
	if r := t.Put(b.Context(), p, notAfter, []Put{put}); r[0].Err != nil {
		b.Fatal(r[0].Err)
	}
}

func BenchmarkPut(b *testing.B) {
	t, p := benchSandbox(b)
	b.ReportAllocs()
	b.ResetTimer()
	for from := 0; from < b.N; from += benchBatch {
		benchPut(b, t, p, from, min(from+benchBatch, b.N))
	}
}

// BenchmarkClaimAndSettle is a scanner's part of a task without the broker's.
func BenchmarkClaimAndSettle(b *testing.B) {
	t, p := benchSandbox(b)
	for from := 0; from < b.N; from += benchBatch {
		benchPut(b, t, p, from, min(from+benchBatch, b.N))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for left, request := b.N, 0; left > 0; request++ {
		batch, err := t.Shard(0).Claim(b.Context(), Claim{
			Claimant: "bench", Request: fmt.Sprint(request), Limit: benchBatch, Lease: time.Minute,
		})
		check.OK(b, err)
		leases := make([]Lease, len(batch.Tasks))
		for i, c := range batch.Tasks {
			leases[i] = Lease{ID: c.ID, Token: c.Token}
		}
		n, err := t.Shard(0).Settle(b.Context(), leases)
		if err != nil || n == 0 {
			b.Fatalf("settled %d with %d to come: %v", n, left, err)
		}
		left -= n
	}
}

// BenchmarkReschedule moves tasks in batches, each task once.
func BenchmarkReschedule(b *testing.B) {
	t, p := benchSandbox(b)
	for from := 0; from < b.N; from += benchBatch {
		benchPut(b, t, p, from, min(from+benchBatch, b.N))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for from := 0; from < b.N; from += benchBatch {
		var moves []Move
		for n := from; n < min(from+benchBatch, b.N); n++ {
			moves = append(moves, Move{Op: NewOp(), ID: fmt.Sprintf("order-%012d", n), When: task.In(time.Hour)})
		}
		notAfter, err := t.store.scripts.Deadline(b.Context())
		check.OK(b, err)
		for _, r := range t.Reschedule(b.Context(), p, notAfter, moves) {
			check.OK(b, r.Err)
		}
	}
}
