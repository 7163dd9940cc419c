package forward_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(servertest.Leaks(m))
}

// unhurried is the ConfirmTimeout for messages that must be confirmed, however long it
// takes.
const unhurried = time.Hour

// results collects what a publisher reports and notices a second result.
type results struct {
	t  testing.TB
	mu sync.Mutex
	of map[*forward.Message]forward.Result
}

func newResults(t testing.TB) *results {
	return &results{t: t, of: make(map[*forward.Message]forward.Result)}
}

func (r *results) take(batch []forward.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range batch {
		if earlier, ok := r.of[one.Message]; ok {
			r.t.Errorf("two results for %q: %v (%s), then %v (%s)", one.Message.Task.ID, earlier.Outcome, earlier.Reason,
				one.Outcome, one.Reason)
		}
		r.of[one.Message] = one
	}
}

func (r *results) get(m *forward.Message) (forward.Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.of[m]
	return one, ok
}

func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.of)
}

// all waits for the results of all messages, in their order.
func (r *results) all(messages ...*forward.Message) []forward.Result {
	r.t.Helper()
	found := make([]forward.Result, len(messages))
	for i, m := range messages {
		check.Progress(r.t, fmt.Sprintf("a result for %q", m.Task.ID), r.count, func() bool {
			one, ok := r.get(m)
			found[i] = one
			return ok
		})
	}
	return found
}

// outcomes counts the results by outcome.
func outcomes(found []forward.Result) map[forward.Outcome]int {
	n := make(map[forward.Outcome]int)
	for _, one := range found {
		n[one.Outcome]++
	}
	return n
}

// connect runs a connection until the end of the test, with limits that a slow machine
// doesn't reach.
func connect(t testing.TB, cfg forward.Config) *forward.Connection {
	t.Helper()
	return connectAsIs(t, forward.Target(cfg))
}

// connectAsIs runs a connection with the same limits as in a scanner.
func connectAsIs(t testing.TB, cfg forward.Config) *forward.Connection {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	c, err := forward.New(cfg)
	check.OK(t, err)
	check.Background(t, "Run of a connection", c.Run)
	return c
}

// publisher runs a publisher until the end of the test. Unless the route sets a
// ConfirmTimeout, it waits for confirms however long they take.
func publisher(t testing.TB, c *forward.Connection, topic string, r forward.Route) (*forward.Publisher, *results) {
	t.Helper()
	if r.ConfirmTimeout == 0 {
		r.ConfirmTimeout = unhurried
	}
	got := newResults(t)
	p := c.NewPublisher(topic, r, got.take)
	check.Background(t, "a publisher", running(p))
	return p, got
}

func ready(t testing.TB, p *forward.Publisher) {
	t.Helper()
	check.OK(t, p.WaitReady(check.Context(t)))
}

// roomy waits until the topic's channel has that many places. A broker that no longer answers opens
// no larger channel.
func roomy(t *testing.T, p *forward.Publisher, places int) {
	t.Helper()
	p.Widen(places)
	check.Until(t, "a large channel", func() bool { return p.Places() >= places })
	ready(t, p)
}

func publish(t testing.TB, p *forward.Publisher, batch ...*forward.Message) {
	t.Helper()
	check.OK(t, p.Publish(t.Context(), batch))
}

// messages returns n messages with distinct IDs.
func messages(topic, prefix string, n int) []*forward.Message {
	batch := make([]*forward.Message, n)
	for i := range batch {
		batch[i] = &forward.Message{Task: task.Task{
			Topic: topic, ID: fmt.Sprintf("%s-%d", prefix, i), Attempt: 1,
			Due: time.Now(), Scheduled: time.Now(), Payload: []byte("payload"),
		}}
	}
	return batch
}

// declareExchange makes a durable exchange.
func declareExchange(t testing.TB, ch *amqp.Channel, name, kind string) {
	t.Helper()
	check.OK(t, ch.ExchangeDeclare(name, kind, true, false, false, false, nil))
}

// declareQueue makes a durable queue and binds it.
func declareQueue(t testing.TB, ch *amqp.Channel, queue, exchange, key string, args, match amqp.Table) {
	t.Helper()
	_, err := ch.QueueDeclare(queue, true, false, false, false, args)
	check.OK(t, err)
	check.OK(t, ch.QueueBind(queue, key, exchange, false, match))
}

// stored takes all messages out of a queue, up to its own end mark, and counts them by
// message-id.
func stored(t testing.TB, ch *amqp.Channel, queue string) map[string]int {
	t.Helper()
	const end = "the end of a test's messages"
	check.OK(t, ch.Publish("", queue, true, false, amqp.Publishing{MessageId: end}))
	deliveries, err := ch.Consume(queue, queue, true, false, false, false, nil)
	check.OK(t, err)
	ids := make(map[string]int)
	for {
		m := check.Receive(t, "the end of queue "+queue, deliveries)
		if m.MessageId != end {
			ids[m.MessageId]++
			continue
		}
		check.OK(t, ch.Cancel(queue, false))
		return ids
	}
}

// testWriter shows the log of a test that failed.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// running runs a publisher until a context ends.
func running(p *forward.Publisher) func(context.Context) error {
	return func(ctx context.Context) error {
		p.Start(ctx)
		<-ctx.Done()
		p.Wait()
		return nil
	}
}
