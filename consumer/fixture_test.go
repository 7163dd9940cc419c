package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	shared "github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
		os.Exit(1)
	}
	os.Exit(servertest.Leaks(m))
}

const (
	orders = shared.Orders
	queue  = "orders.due"
	// never is longer than any test: for leases that must not end, and handlers that must
	// not time out.
	never = time.Hour
)

// fixture is one test's part of the servers, with the topic orders.
type fixture struct {
	t        *testing.T
	settings fleet.Settings
	config   string
	rdb      redis.UniversalClient
	topic    *shard.Topic
	producer *producer.Client
	channel  *amqp.Channel
	headers  string // the topic's setting
}

// eitherForm runs a test with full messages and with lean ones, each in a world of its
// own.
func eitherForm(t *testing.T, test func(t *testing.T, w *fixture)) {
	for _, headers := range []string{"full", "lean"} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.headers = headers
			test(t, w)
		})
	}
}

// newFixture starts no scanner, so that a test can forward tasks itself.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, headers: "full", config: filepath.Join(t.TempDir(), "config.yaml")}
	r := shared.New(t)
	w.settings.RedisAddr, w.settings.RedisPrefix, w.settings.RabbitMQURL = r.Addr, r.Prefix, servertest.RabbitMQ(t)
	w.rdb, w.topic = r.Client, r.Orders()
	var err error
	w.producer, err = producer.New(producer.Config{Redis: w.rdb, Prefix: w.settings.RedisPrefix})
	check.OK(w.t, err)
	w.channel = servertest.Channel(t, w.settings.RabbitMQURL)
	w.declare()
	return w
}

// declare declares the queue with a dead-letter exchange and a dead-letter queue.
func (w *fixture) declare() {
	w.t.Helper()
	_, err := w.channel.QueueDeclare("dead", true, false, false, false, nil)
	check.OK(w.t, err)
	_, err = w.channel.QueueDeclare(queue, true, false, false, false, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	})
	check.OK(w.t, err)
}

// past returns the key of a task's delivery history.
func (w *fixture) past(id string) string {
	return w.settings.RedisPrefix + ":history:{" + orders + ":" + id + "}"
}

// serve runs a scanner for a topic with four shards.
func (w *fixture) serve() *fixture {
	w.t.Helper()
	w.reshard(4)
	return w.scan()
}

// scan runs a scanner with the last configuration written.
func (w *fixture) scan() *fixture {
	w.t.Helper()
	check.Background(w.t, "the scanner", func(ctx context.Context) error { return member.Run(ctx, w.config) })
	check.Until(w.t, "the topic is served", func() bool {
		_, err := w.topic.Placement(w.t.Context())
		return err == nil
	})
	return w
}

// reshard writes the configuration with another shard count.
func (w *fixture) reshard(shards int) {
	w.t.Helper()
	w.settings.Topics = map[string]fleet.Topic{orders: {
		"shards": shards, "exchange": "", "routing_key": queue, "lease": never.String(), "headers": w.headers,
	}}
	w.settings.ShutdownTimeout = "5m"
	check.OK(w.t, fleet.WriteConfig(w.config, w.settings.Document()))
}

// running is a running consumer.
type running struct {
	*Consumer
	stop func()
}

// consume runs a consumer until the test ends or stop is called.
func (w *fixture) consume(cfg Config) *running {
	w.t.Helper()
	cfg = w.configure(cfg)
	c, err := New(cfg)
	check.OK(w.t, err)
	return &running{c, check.Background(w.t, "the consumer", c.Run)}
}

func (w *fixture) configure(cfg Config) Config {
	orDefault(&cfg.Queue, queue)
	if cfg.URLs == nil {
		cfg.URLs = []string{w.settings.RabbitMQURL}
	}
	if cfg.Redis == nil && cfg.Options == nil {
		cfg.Redis = w.rdb
	}
	orDefault(&cfg.Prefix, w.settings.RedisPrefix)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	orDefault(&cfg.Timeout, never)
	orDefault(&cfg.StopTimeout, 5*time.Minute)
	return cfg
}

// schedule stores a task that is due now.
func (w *fixture) schedule(id, payload string) {
	w.t.Helper()
	w.request(producer.Request{ID: id, Payload: []byte(payload)})
}

func (w *fixture) request(r producer.Request) {
	w.t.Helper()
	r.Topic = orders
	if r.When.IsZero() {
		r.When = producer.Now()
	}
	_, err := w.producer.Schedule(w.t.Context(), r)
	check.OK(w.t, err)
}

func (w *fixture) stored(id string) (producer.Stored, bool) {
	w.t.Helper()
	s, err := w.producer.Get(w.t.Context(), orders, id)
	if errors.Is(err, task.ErrNotFound) {
		return s, false
	}
	check.OK(w.t, err)
	return s, true
}

// parked reads the whole records of the parked tasks, because a list has no payloads.
func (w *fixture) parked() map[string]shard.Record {
	w.t.Helper()
	var listed []string
	check.OK(w.t, admin.Parked{Topic: w.topic}.Each(w.t.Context(), func(r shard.Record) bool {
		listed = append(listed, r.ID)
		return true
	}))
	p, err := w.topic.Placement(w.t.Context())
	check.OK(w.t, err)
	all := map[string]shard.Record{}
	for _, id := range listed {
		r, there, err := w.topic.Shard(p.New(id)).ParkedTask(w.t.Context(), id)
		check.OK(w.t, err)
		if there {
			all[id] = r
		}
	}
	return all
}

// waiting returns the number of ready messages in a queue.
func (w *fixture) waiting(queue string) int {
	w.t.Helper()
	q, err := w.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	check.OK(w.t, err)
	return q.Messages
}

// take empties a queue. It returns its messages, each with the properties that
// distinguish it.
func (w *fixture) take(queue string) (all []string) {
	w.t.Helper()
	for {
		m, there, err := w.channel.Get(queue, true)
		check.OK(w.t, err)
		if !there {
			return all
		}
		all = append(all, fmt.Sprintf("%s attempt %v due %v repeated by the scanner %v, by the broker %v",
			m.MessageId, m.Headers["x-duefleet-attempt"], m.Headers["x-duefleet-due"], m.Headers["x-duefleet-redelivered"],
			m.Redelivered))
	}
}

// log records the deliveries of a handler.
type log struct {
	mu   sync.Mutex
	seen []task.Delivery
}

func (l *log) add(d task.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, d)
}

func (l *log) all() []task.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]task.Delivery(nil), l.seen...)
}

// of returns how often the task was handled.
func (l *log) of(id string) (n int) {
	for _, d := range l.all() {
		if d.ID == id {
			n++
		}
	}
	return n
}

// publish publishes a task's message to the queue, as a scanner does.
func (w *fixture) publish(t task.Task) {
	w.t.Helper()
	headers := amqp.Table{task.HeaderDue: t.Due.UnixMilli(), task.HeaderScheduled: t.Scheduled.UnixMilli()}
	full := w.headers == "full"
	if full {
		headers[task.HeaderTopic] = t.Topic
	}
	if full || t.Attempt > 1 {
		headers[task.HeaderAttempt] = int32(t.Attempt) //nolint:gosec // small
	}
	if full || t.Redelivered {
		headers[task.HeaderRedelivered] = t.Redelivered
	}
	for k, v := range t.Headers {
		headers[k] = v
	}
	w.send(amqp.Publishing{Headers: headers, MessageId: t.ID, Type: t.Topic, Body: t.Payload, ContentType: t.ContentType})
}

func (w *fixture) send(p amqp.Publishing) {
	w.t.Helper()
	check.OK(w.t, w.channel.PublishWithContext(w.t.Context(), "", queue, false, false, p))
}

func shardClaim() shard.Claim {
	return shard.Claim{Claimant: "w", Request: string(shard.NewOp()), Limit: 10, Lease: never}
}

func leaseOf(b shard.Batch) []shard.Lease {
	return []shard.Lease{{ID: b.Tasks[0].ID, Token: b.Tasks[0].Token}}
}
