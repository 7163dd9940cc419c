package forward_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	benchWindow  = 2000
	benchBatch   = 500
	benchPayload = 256
)

// BenchmarkThroughput compares the package with bare amqp091: the same messages, the same
// window, the same broker, one after the other.
func BenchmarkThroughput(b *testing.B) {
	for _, queueType := range []string{"classic", "quorum"} {
		b.Run(queueType+"/bare", func(b *testing.B) { benchBare(b, queueType, benchWindow) })
		b.Run(queueType+"/forward", func(b *testing.B) { benchForward(b, queueType, benchBatch, false) })
	}
}

// BenchmarkHeaders compares lean messages with full ones, in turns of benchTurn on one
// channel. An operation is one message of each form. It also reports the processor time
// per message, this process's and, if /proc shows it, the broker's.
func BenchmarkHeaders(b *testing.B) {
	for _, queueType := range []string{"classic", "quorum"} {
		b.Run(queueType, func(b *testing.B) { benchHeaders(b, queueType) })
	}
}

// benchTurn is much longer than the tick of the broker's processor time, 10 ms.
const benchTurn = 10_000

func benchHeaders(b *testing.B, queueType string) {
	url := servertest.RabbitMQ(b)
	route := forward.Route{
		Exchange: "bench", RoutingKey: "k", Declare: &forward.Declare{Queue: "bench", QueueType: queueType},
		Window: benchWindow,
	}
	p := connect(b, forward.Config{URLs: []string{url}}).NewPublisher("bench", route, func([]forward.Result) {})
	check.Background(b, "a publisher", running(p))
	ready(b, p)
	broker, batch := brokerOf(b, url), benchMessages(benchBatch)
	used, own, took := map[bool]time.Duration{}, map[bool]time.Duration{}, map[bool]time.Duration{}
	b.ResetTimer()
	for left, turn := b.N, 0; left > 0; left, turn = left-benchTurn, turn+1 {
		n := min(left, benchTurn)
		for _, lean := range [][]bool{{false, true}, {true, false}}[turn%2] {
			route.Lean = lean
			p.SetRoute(route)
			before, mine, began := broker.used(b), cpu(b), time.Now()
			for sent := 0; sent < n; sent += len(batch) {
				check.OK(b, p.Publish(b.Context(), batch[:min(len(batch), n-sent)]))
			}
			check.OK(b, p.Drain(b.Context()))
			took[lean] += time.Since(began)
			own[lean] += cpu(b) - mine
			used[lean] += broker.used(b) - before
		}
	}
	b.StopTimer()
	for lean, form := range map[bool]string{false: "full", true: "lean"} {
		b.ReportMetric(float64(b.N)/took[lean].Seconds(), form+"-msg/s")
		b.ReportMetric(float64(own[lean].Nanoseconds())/float64(b.N), form+"-cpu-ns/msg")
		if broker != 0 {
			b.ReportMetric(float64(used[lean].Nanoseconds())/float64(b.N), form+"-broker-ns/msg")
		}
	}
}

// BenchmarkLatency measures the time to the confirm of one message at a time.
func BenchmarkLatency(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchBare(b, "classic", 1) })
	b.Run("forward", func(b *testing.B) { benchForward(b, "classic", 1, true) })
}

// BenchmarkUnroutable measures the worst case of matching returns.
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
	ch := servertest.Channel(b, servertest.RabbitMQ(b))
	declareExchange(b, ch, "bench", amqp.ExchangeDirect)
	declareQueue(b, ch, "bench", "bench", "k", amqp.Table{"x-queue-type": queueType}, nil)
	check.OK(b, ch.Confirm(false))
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
		check.OK(b, ch.Publish("bench", "k", true, false, forward.Publishing(batch[i%len(batch)].Task)))
	}
	<-done
	report(b, before)
}

func benchForward(b *testing.B, queueType string, size int, oneByOne bool) {
	p, done := benchPublisher(b, forward.Route{
		Exchange: "bench", RoutingKey: "k", Declare: &forward.Declare{Queue: "bench", QueueType: queueType},
		Window: benchWindow,
	})
	benchRun(b, p, done, size, oneByOne)
}

func benchPublisher(b *testing.B, r forward.Route) (*forward.Publisher, chan int) {
	done := make(chan int, 1<<20)
	c := connect(b, forward.Config{URLs: []string{servertest.RabbitMQ(b)}})
	p := c.NewPublisher("bench", r, func(batch []forward.Result) { done <- len(batch) })
	check.Background(b, "a publisher", running(p))
	ready(b, p)
	return p, done
}

func benchRun(b *testing.B, p *forward.Publisher, done chan int, size int, oneByOne bool) {
	batch := benchMessages(size)
	before := cpu(b)
	b.ResetTimer()
	for left := b.N; left > 0; left -= size {
		check.OK(b, p.Publish(b.Context(), batch[:min(size, left)]))
		if oneByOne {
			<-done
		}
	}
	check.OK(b, p.Drain(b.Context()))
	report(b, before)
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	check.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report adds the processor time per message. Other work on the machine blurs it less
// than elapsed time.
func report(b *testing.B, before time.Duration) {
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/msg")
}

// broker is the process ID of a RabbitMQ on this machine; 0 if it isn't known.
type broker int

// brokerOf finds the process that listens at the port of a URL.
func brokerOf(b *testing.B, rawURL string) broker {
	u, err := url.Parse(rawURL)
	check.OK(b, err)
	port, err := strconv.Atoi(u.Port())
	check.OK(b, err)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		sockets, _ := os.ReadFile(table)
		for line := range strings.Lines(string(sockets)) {
			const local, state, inode = 1, 3, 9
			f := strings.Fields(line)
			if len(f) <= inode || !strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) || f[state] != "0A" {
				continue
			}
			files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
			for _, file := range files {
				if target, _ := os.Readlink(file); target == "socket:["+f[inode]+"]" {
					pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
					return broker(pid)
				}
			}
		}
	}
	return 0
}

// used returns the processor time of the broker, to 10 ms.
func (p broker) used(b *testing.B) time.Duration {
	if p == 0 {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	check.OK(b, err)
	// The name, in brackets, may contain any character, so count from its end.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const user, system, clockTick = 11, 12, 10 * time.Millisecond
	var ticks int
	for _, field := range []int{user, system} {
		n, err := strconv.Atoi(fields[field])
		check.OK(b, err)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
