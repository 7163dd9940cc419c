package intake

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

const (
	exchange = "orders.delayed"
	queue    = "orders.intake"
	refused  = queue + ".refused"
	// maxPayload is the largest payload in tests, in bytes.
	maxPayload = 1000
)

// harness is the intake of the topic orders, whose tasks nobody delivers.
type harness struct {
	t      *testing.T
	redis  *fixture.Redis
	url    string
	inlet  forward.Inlet
	client *amqp.Channel // of a client
	log    *check.Log
	key    Key
	prios  bool // Settings.Priorities
	dead   bool // Settings.DeadLetters
	room   int  // bytes
	pace   pace
	large  *Large
	in     *Intake

	placement shard.Placement
	endIn     func()                 // ends the connection of the latest intake
	failed    atomic.Int64           // errors that were counted
	counts    []*prometheus.Registry // of all intakes
	published int                    // messages

	all *harness // counts the bytes of several; nil: no other

	mu   sync.Mutex
	held int // bytes
	peak int // of held
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	return newHarnessOn(t, fixture.New(t))
}

func newHarnessOn(t *testing.T, rdb *fixture.Redis) *harness {
	t.Helper()
	return newHarnessAt(t, rdb, servertest.RabbitMQ(t))
}

// newHarnessAt declares the inlet, so that a test can publish before the intake runs.
func newHarnessAt(t *testing.T, rdb *fixture.Redis, url string) *harness {
	t.Helper()
	h := &harness{t: t, redis: rdb, url: url, log: &check.Log{}, large: NewLarge(64 << 20),
		room: 16 << 20, inlet: forward.Inlet{Exchange: exchange,
			Type: amqp.ExchangeTopic, Queue: queue, Refused: refused, Canary: exchange + ".canary", Declare: true}}
	_, h.placement = rdb.Serve(t, 4)
	h.client = servertest.Channel(t, h.url)
	check.OK(h.t, h.inlet.Prepare(h.client))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", h.log)
		}
	})
	return h
}

// connect runs a connection until the test ends.
func (h *harness) connect(receives bool) (c *forward.Connection, end func()) {
	h.t.Helper()
	c, err := forward.New(forward.Config{URLs: []string{h.url}, Receives: receives})
	check.OK(h.t, err)
	end = check.Background(h.t, "a connection", c.Run)
	if !receives { // a publisher makes the connection usable
		p := c.NewPublisher("orders", forward.Route{}, func([]forward.Result) {})
		check.Background(h.t, "a publisher", func(ctx context.Context) error {
			p.Start(ctx)
			<-ctx.Done()
			p.Wait()
			return nil
		})
		check.OK(h.t, p.WaitReady(check.Context(h.t)))
	}
	return c, end
}

// intake returns an intake that isn't started.
func (h *harness) intake() *Intake {
	h.t.Helper()
	registry := prometheus.NewRegistry()
	h.counts = append(h.counts, registry)
	var metrics telemetry.Set
	counts := telemetry.DeclareForTopics[Metrics](&metrics)
	check.OK(h.t, metrics.Register(registry))
	in, end := h.connect(true)
	h.endIn = end
	out, _ := h.connect(false)
	return New(Config{
		Topic: h.redis.Orders(), Tasks: router.New(h.redis.Store).Topic(fixture.Orders), MaxPayload: maxPayload,
		In: in, Out: out, Room: func() int { return h.room }, Hold: h.hold, Large: h.large,
		Metrics: counts(fixture.Orders), Count: func(string) { h.failed.Add(1) },
		Log: slog.New(slog.NewTextHandler(h.log, nil)), pace: h.pace,
	})
}

func (h *harness) hold(bytes int) {
	if h.all != nil {
		h.all.hold(bytes)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held += bytes
	h.peak = max(h.peak, h.held)
}

// start runs the intake until the test ends or end is called.
func (h *harness) start() (end func()) {
	h.t.Helper()
	h.in = h.intake()
	return check.Background(h.t, "the intake", func(ctx context.Context) error {
		s := Settings{Queue: h.inlet.Queue, Refused: refused, Target: "orders", Key: h.key, Priorities: h.prios,
			DeadLetters: h.dead, Prepare: h.inlet.Prepare}
		if h.inlet.Declare {
			s.Bind = h.inlet.Bind
		}
		h.in.Serve(ctx, s)
		return nil
	})
}

// publish publishes a message as a client does.
func (h *harness) publish(p amqp.Publishing) {
	h.t.Helper()
	check.OK(h.t, h.client.PublishWithContext(h.t.Context(), exchange, "key.of.a.client", true, false, p))
	h.published++
}

// counted returns how many messages the intakes counted as carried out or refused.
func (h *harness) counted() (n int) {
	h.t.Helper()
	return h.count("duefleet_intake_total") + h.count("duefleet_intake_refused_total")
}

// count returns the sum of a metric of all intakes, or of its series with a value of a label.
func (h *harness) count(metric string, label ...string) (n int) {
	h.t.Helper()
	for _, registry := range h.counts {
		families, err := registry.Gather()
		check.OK(h.t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				of := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return slices.Contains(label, l.GetValue()) })
				if f.GetName() == metric && (of || len(label) == 0) {
					n += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
				}
			}
		}
	}
	return n
}

// newMessage returns a message with an ID, a body, and headers as pairs of key and value.
func newMessage(id string, pairs ...any) amqp.Publishing {
	p := amqp.Publishing{MessageId: id, Body: []byte("body of " + id), DeliveryMode: amqp.Persistent,
		Headers: amqp.Table{}}
	for i := 0; i < len(pairs); i += 2 {
		p.Headers[pairs[i].(string)] = pairs[i+1]
	}
	return p
}

// settled waits until all messages are carried out and acked.
func (h *harness) settled() {
	h.t.Helper()
	check.Progress(h.t, "all messages to be acked", h.counted, func() bool {
		return h.counted() >= h.published && h.unacked() == 0
	})
}

// unacked returns the bytes that the intake holds.
func (h *harness) unacked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *harness) waiting(queue string) int {
	h.t.Helper()
	q, err := h.client.QueueDeclarePassive(queue, true, false, false, false, nil)
	check.OK(h.t, err)
	return q.Messages
}

// taken returns the next message of a queue.
func (h *harness) taken(queue string) (d amqp.Delivery) {
	h.t.Helper()
	got := false
	check.Until(h.t, "a message in "+queue, func() bool {
		if !got {
			var err error
			d, got, err = h.client.Get(queue, true)
			check.OK(h.t, err)
		}
		return got
	})
	return d
}

// stored is a task of the intake as Redis has it.
type stored struct {
	due       time.Time
	scheduled time.Time
	message   amqpmsg.Message
}

// records returns the stored tasks by ID.
func (h *harness) records() map[string]stored {
	h.t.Helper()
	all := map[string]stored{}
	iter := h.redis.Client.Scan(h.t.Context(), 0, h.redis.Prefix+"*task*", 1000).Iterator()
	for iter.Next(h.t.Context()) {
		for id, record := range h.redis.Client.HGetAll(h.t.Context(), iter.Val()).Val() {
			const head = 19 // format, due, scheduled, op
			m, err := amqpmsg.Decode([]byte(record[head:]))
			check.OK(h.t, err)
			all[id] = stored{time.UnixMilli(bigEndian(record[1:7])), time.UnixMilli(bigEndian(record[7:13])), m}
		}
	}
	check.OK(h.t, iter.Err())
	return all
}

func bigEndian(b string) (n int64) {
	for i := range len(b) {
		n = n<<8 | int64(b[i])
	}
	return n
}

// one returns the only stored task.
func (h *harness) one() stored {
	h.t.Helper()
	all := h.records()
	if len(all) != 1 {
		h.t.Fatalf("%d tasks are stored: %v", len(all), all)
	}
	for _, s := range all {
		return s
	}
	return stored{}
}

// delay returns how long after it was stored the task is due.
func (s stored) delay() time.Duration { return s.due.Sub(s.scheduled) }

// answers declares a queue for answers and returns its name.
func (h *harness) answers() string {
	h.t.Helper()
	q, err := h.client.QueueDeclare("", false, true, true, false, nil)
	check.OK(h.t, err)
	return q.Name
}

// answer returns the next answer, with its correlation_id.
func (h *harness) answer(from string) (reply, string) {
	h.t.Helper()
	d := h.taken(from)
	var r reply
	check.OK(h.t, json.Unmarshal(d.Body, &r))
	return r, d.CorrelationId
}

// request is a message that wants an answer.
func request(to, correlation, id, verb string, pairs ...any) amqp.Publishing {
	p := newMessage(id, append([]any{HeaderVerb, verb}, pairs...)...)
	p.ReplyTo, p.CorrelationId = to, correlation
	return p
}
