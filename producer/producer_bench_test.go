package producer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// benchClient serves the topic orders in four shards. The benchmarks count tasks: ns/op
// and allocs/op are per task, also in a batch.
func benchClient(b *testing.B) *producer.Client {
	r := fixture.New(b)
	r.Serve(b, 4)
	c, err := producer.New(producer.Config{Redis: r.Client, Prefix: r.Prefix})
	check.OK(b, err)
	return c
}

func benchRequests(n int) []producer.Request {
	requests := make([]producer.Request, n)
	for i := range requests {
		requests[i] = producer.Request{
			Topic: "orders", ID: fmt.Sprintf("order-%012d", i), When: producer.In(time.Hour), Payload: make([]byte, 200),
		}
	}
	return requests
}

func BenchmarkSchedule(b *testing.B) {
	c := benchClient(b)
	requests := benchRequests(1000)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		_, err := c.Schedule(b.Context(), requests[n%len(requests)])
		check.OK(b, err)
	}
}

// BenchmarkScheduleSpans is Schedule with a span for each call, from a provider that drops
// it.
func BenchmarkScheduleSpans(b *testing.B) {
	r := fixture.New(b)
	r.Serve(b, 4)
	c, err := producer.New(producer.Config{Redis: r.Client, Prefix: r.Prefix,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropping{}))})
	check.OK(b, err)
	requests := benchRequests(1000)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		_, err := c.Schedule(b.Context(), requests[n%len(requests)])
		check.OK(b, err)
	}
}

// dropping is a processor that drops spans.
type dropping struct{ sdktrace.SpanProcessor }

func (dropping) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (dropping) OnEnd(sdktrace.ReadOnlySpan) {}

func BenchmarkScheduleMany(b *testing.B) {
	const batch = 500
	c := benchClient(b)
	requests := benchRequests(batch)
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= batch {
		for _, r := range c.ScheduleMany(b.Context(), requests[:min(batch, left)]) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// BenchmarkScheduleParallel is Schedule from 16 goroutines a processor, which share
// calls.
func BenchmarkScheduleParallel(b *testing.B) {
	c := benchClient(b)
	requests := benchRequests(1000)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.ResetTimer()
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Schedule(b.Context(), requests[int(n.Add(1))%len(requests)]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCancelMany cancels waiting tasks, 500 in a call.
func BenchmarkCancelMany(b *testing.B) {
	const batch = 500
	c := benchClient(b)
	requests := benchRequests(batch)
	ids := make([]string, batch)
	for i := range requests {
		ids[i] = requests[i].ID
	}
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= batch {
		b.StopTimer()
		for _, r := range c.ScheduleMany(b.Context(), requests[:min(batch, left)]) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		b.StartTimer()
		for _, err := range c.CancelMany(b.Context(), "orders", ids[:min(batch, left)]) {
			check.OK(b, err)
		}
	}
}
