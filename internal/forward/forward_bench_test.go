package forward_test

import (
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	benchWindow  = 2000
	benchBatch   = 500
	benchPayload = 256
)

// BenchmarkThroughput compares the package with amqp091 used bare: the same
// messages, the same window, the same broker, one after the other.
func BenchmarkThroughput(b *testing.B) {
	for _, queueType := range []string{"classic", "quorum"} {
		b.Run(queueType+"/bare", func(b *testing.B) { benchBare(b, queueType, benchWindow) })
		b.Run(queueType+"/forward", func(b *testing.B) { benchForward(b, queueType, benchBatch, false) })
	}
}

// BenchmarkLatency is the time to a confirm of one message at a time.
func BenchmarkLatency(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchBare(b, "classic", 1) })
	b.Run("forward", func(b *testing.B) { benchForward(b, "classic", 1, true) })
}

// BenchmarkUnroutable is the worst case of matching returns.
func BenchmarkUnroutable(b *testing.B) {
	b.Run("forward", func(b *testing.B) {
		p, done := benchPublisher(b, forward.Route{Exchange: "amq.direct", RoutingKey: "nowhere", Window: benchWindow})
		benchRun(b, p, done, benchBatch, false)
	})
}

func benchMessages(n int) []*forward.Message {
	batch := messages("bench", "task-0123456789", n)
	for _, m := range batch {
		m.Task.Payload = make([]byte, benchPayload)
	}
	return batch
}

func benchBare(b *testing.B, queueType string, window int) {
	ch := amqpChannel(b, servertest.RabbitMQ(b))
	declareExchange(b, ch, "bench", amqp.ExchangeDirect)
	declareQueue(b, ch, "bench", "bench", "k", amqp.Table{"x-queue-type": queueType}, nil)
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, window))
	room := make(chan struct{}, window)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range b.N {
			<-confirms
			<-room
		}
	}()
	batch := benchMessages(benchBatch)
	before := cpu(b)
	b.ResetTimer()
	for i := range b.N {
		room <- struct{}{}
		if err := ch.Publish("bench", "k", true, false, forward.Publishing(batch[i%len(batch)].Task)); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	report(b, before)
}

func benchForward(b *testing.B, queueType string, size int, oneByOne bool) {
	p, done := benchPublisher(b, forward.Route{
		Exchange: "bench", RoutingKey: "k", Declare: &forward.Declare{Queue: "bench", QueueType: queueType}, Window: benchWindow,
	})
	benchRun(b, p, done, size, oneByOne)
}

func benchPublisher(b *testing.B, r forward.Route) (*forward.Publisher, chan int) {
	done := make(chan int, 1<<20)
	c := connect(b, forward.Config{URLs: []string{servertest.RabbitMQ(b)}})
	p := c.NewPublisher("bench", r, func(batch []forward.Result) { done <- len(batch) })
	background(b, p.Run)
	ready(b, p)
	return p, done
}

func benchRun(b *testing.B, p *forward.Publisher, done chan int, size int, oneByOne bool) {
	batch := benchMessages(size)
	before := cpu(b)
	b.ResetTimer()
	for left := b.N; left > 0; left -= size {
		if err := p.Publish(b.Context(), batch[:min(size, left)]); err != nil {
			b.Fatal(err)
		}
		if oneByOne {
			<-done
		}
	}
	if err := p.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
	report(b, before)
}

// cpu is the processor time this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report adds what a machine that has other work to do can't blur as much as
// the time: the processor time a message.
func report(b *testing.B, before time.Duration) {
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/msg")
}
