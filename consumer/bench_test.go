package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// benchPrefetch is the prefetch of all benchmarks.
const benchPrefetch = 200

// BenchmarkConsume drains a queue of b.N tasks of 200 bytes. It compares a plain amqp091
// consumer that acks each message with this package, with Remember and without.
func BenchmarkConsume(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchmark(b, bare) })
	for name, remember := range map[string]time.Duration{"wrapped": -1, "remembering": time.Hour} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, func(b *testing.B, url string, handled func()) {
				wrapped(b, url, remember, handled)
			})
		})
	}
}

// benchmark fills a queue and measures until drain has handled all of it.
func benchmark(b *testing.B, drain func(b *testing.B, url string, handled func())) {
	url := servertest.RabbitMQ(b)
	fill(b, url, b.N)
	var n atomic.Int64
	all := make(chan struct{})
	b.ResetTimer()
	drain(b, url, func() {
		if n.Add(1) == int64(b.N) {
			close(all)
		}
	})
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func fill(b *testing.B, url string, n int) {
	b.Helper()
	channel := servertest.Channel(b, url)
	_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	check.OK(b, err)
	for i := range n {
		p := message(func(p *amqp.Publishing) {
			p.MessageId, p.Body = fmt.Sprintf("order-%012d", i), []byte(strings.Repeat("x", 200))
		})
		check.OK(b, channel.PublishWithContext(b.Context(), "", queue, false, false, p))
	}
	check.Count(b, "all messages to be in the queue", n, func() int {
		q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		check.OK(b, err)
		return q.Messages
	})
}

func bare(b *testing.B, url string, handled func()) {
	channel := servertest.Channel(b, url)
	check.OK(b, channel.Qos(benchPrefetch, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	check.OK(b, err)
	for range b.N {
		d := <-deliveries
		handled()
		check.OK(b, d.Ack(false))
	}
}

func wrapped(b *testing.B, url string, remember time.Duration, handled func()) {
	addr, prefix := servertest.Redis(b)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	b.Cleanup(func() { _ = rdb.Close() })
	placeOrders(b, rdb, prefix)
	c, err := New(Config{
		URLs: []string{url}, Queue: queue, Redis: rdb, Prefix: prefix, Remember: remember,
		Prefetch: benchPrefetch, Concurrency: 20,
		Handler: func(context.Context, task.Delivery) error { handled(); return nil },
	})
	check.OK(b, err)
	before, busy := info(b, rdb, "memory", "used_memory"), redisTime(b, rdb)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
		n := float64(b.N)
		b.Logf("%d tasks: %.0f bytes and %.1f µs of Redis a task", b.N, (info(b, rdb, "memory", "used_memory")-before)/n,
			(redisTime(b, rdb)-busy)*1e6/n)
	})
}

// placeOrders creates the placement of the topic orders, which handlers need.
func placeOrders(b *testing.B, rdb redis.UniversalClient, prefix string) {
	b.Helper()
	store, err := shard.New(rdb, prefix)
	check.OK(b, err)
	_, err = store.Topic("orders").Ensure(b.Context(), 1)
	check.OK(b, err)
}

// redisTime returns the processor time that Redis has used, in seconds.
func redisTime(b *testing.B, rdb redis.UniversalClient) float64 {
	return info(b, rdb, "cpu", "used_cpu_user") + info(b, rdb, "cpu", "used_cpu_sys")
}

func info(b *testing.B, rdb redis.UniversalClient, section, name string) (value float64) {
	b.Helper()
	for _, of := range rdb.InfoMap(context.Background(), section).Val() {
		if text, ok := of[name]; ok {
			_, err := fmt.Sscan(text, &value)
			check.OK(b, err)
		}
	}
	return value
}
