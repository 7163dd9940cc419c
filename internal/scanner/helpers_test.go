package scanner

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(servertest.Leaks(m))
}

// lone is a scanner in the test's own process, on real servers, with its topics in
// a file.
type lone struct {
	*Scanner
	t      *testing.T
	path   string
	prefix string           // of the file: everything except the topics
	rabbit string           // the broker's own URL
	bridge *toxiproxy.Proxy // the proxy between the scanner and the broker
	rdb    redis.UniversalClient
	said   *check.Log // what the scanner logged
}

// declaring returns a topic's document that declares its exchange and a queue <name>.due.
func declaring(name string, more ...string) string {
	declare := fmt.Sprintf("declare: {type: direct, queue: %s.due, queue_type: classic}", name)
	return fmt.Sprintf("{%s}", strings.Join(append(more, declare), ", "))
}

// newLone puts a scanner together and starts nothing. wrap may replace its source.
func newLone(t *testing.T, topics map[string]string, wrap func(config.Source) config.Source) *lone {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	return newLoneOn(t, addr, prefix, topics, wrap)
}

// newLoneOn is newLone on the Redis with these addresses, separated by commas.
func newLoneOn(t *testing.T, addrs, prefix string, topics map[string]string,
	wrap func(config.Source) config.Source) *lone {
	t.Helper()
	l := &lone{t: t, said: &check.Log{}, path: filepath.Join(t.TempDir(), "config.yaml"), rabbit: servertest.RabbitMQ(t)}
	u, err := url.Parse(l.rabbit)
	check.OK(l.t, err)
	l.bridge = faults.Proxy(t, faults.Local, u.Host)
	u.Host = l.bridge.Listen
	l.prefix = fmt.Sprintf("redis: {addrs: [%s], prefix: %s}\nrabbitmq: {urls: [%q]}\nadmin: {listen: \"127.0.0.1:0\"}\n",
		addrs, prefix, u)
	l.write(topics)
	cfg, err := config.Load(l.path, nil)
	check.OK(l.t, err)
	options := servertest.RedisOptions(addrs)
	options.ContextTimeoutEnabled = true
	l.rdb = redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = l.rdb.Close() })
	var source config.Source = config.NewFile(l.path, nil)
	if wrap != nil {
		source = wrap(source)
	}
	l.Scanner, err = New(Config{Settings: cfg, Source: source, Store: storeOf(t, l.rdb, prefix), Instance: "lone",
		Log: slog.New(slog.NewTextHandler(l.said, nil))})
	check.OK(l.t, err)
	return l
}

// start runs the scanner until the test ends, and returns once it serves the
// topics of its file.
func (l *lone) start() {
	l.t.Helper()
	l.run()
	cfg, err := config.Load(l.path, nil)
	check.OK(l.t, err)
	for name := range cfg.Topics {
		check.Until(l.t, "topic "+name+" to be served", func() bool {
			v := l.served(name)
			if v == nil {
				return false
			}
			p, _ := v.topic.resharder.Known()
			ready, _ := v.topic.publisher.Ready()
			return p.Epoch > 0 && ready
		})
	}
}

// run runs the scanner until the test ends.
func (l *lone) run() {
	l.t.Helper()
	check.Background(l.t, "the scanner", l.Run)
}

// write replaces the topics in the file, in one step.
func (l *lone) write(topics map[string]string) {
	l.t.Helper()
	text := l.prefix + "topics:\n"
	for name, doc := range topics {
		text += fmt.Sprintf("  %s: %s\n", name, doc)
	}
	if len(topics) == 0 {
		text = l.prefix
	}
	next := l.path + ".next"
	check.OK(l.t, os.WriteFile(next, []byte(text), 0o600))
	check.OK(l.t, os.Rename(next, l.path))
}

// trouble returns what is wrong with a topic; "" if nothing is.
func (l *lone) trouble(name string) string {
	var texts []string
	for _, p := range l.served(name).problems() {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "; ")
}

func (l *lone) topic(name string) *shard.Topic { return l.store.Topic(name) }

// broker returns a connection for the test itself.
func (l *lone) broker() *amqp.Connection {
	l.t.Helper()
	conn, err := amqp.Dial(l.rabbit)
	check.OK(l.t, err)
	l.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// declared reports whether there is an exchange with that name.
func (l *lone) declared(conn *amqp.Connection, exchange string) bool {
	l.t.Helper()
	ch, err := conn.Channel()
	check.OK(l.t, err)
	defer ch.Close()
	return ch.ExchangeDeclarePassive(exchange, "direct", true, false, false, false, nil) == nil
}

// exports reports whether a metric of a topic is exported.
func (l *lone) exports(topic string) bool {
	l.t.Helper()
	families, err := l.cfg.Registry.Gather()
	check.OK(l.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if f.GetName() == "duefleet_workers" && label.GetName() == "topic" && label.GetValue() == topic {
					return true
				}
			}
		}
	}
	return false
}

// harness is a topic of one shard for one test. Only the test's own workers serve it.
type harness struct {
	topic  *topic
	t      *testing.T
	p      shard.Placement
	rdb    redis.UniversalClient
	prefix string
}

// storeOf returns the store under a prefix.
func storeOf(t *testing.T, rdb redis.UniversalClient, prefix string) *shard.Store {
	t.Helper()
	store, err := shard.New(rdb, prefix)
	check.OK(t, err)
	return store
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	return harnessOn(t, addr, prefix)
}

// harnessOn is newHarness on the Redis at an address.
func harnessOn(t *testing.T, addr, prefix string) *harness {
	t.Helper()
	rdb := fixture.Client(t, addr)
	settings := config.Defaults()
	settings.Redis.Prefix = prefix
	s, err := New(Config{Settings: &settings, Store: storeOf(t, rdb, settings.Redis.Prefix), Instance: "me",
		Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	b := &harness{topic: s.newTopic(config.Document{Name: "orders", Topic: config.DefaultTopic("orders")}), t: t, rdb: rdb,
		prefix: prefix}
	b.p, err = b.topic.store.Ensure(t.Context(), 1)
	check.OK(t, err)
	return b
}

// put stores tasks in shard 0, all due at when.
func (b *harness) put(when task.When, ids ...string) {
	b.t.Helper()
	fixture.Put(b.t, b.topic.store, b.p, 0, fixture.Entries(when, []byte{0}, ids...)...)
}

// newClaim returns a claim that no other has the number of.
func (b *harness) newClaim(limit int) shard.Claim {
	return shard.Claim{Claimant: b.topic.instance, Request: b.topic.requests.next(), Limit: limit, Lease: time.Hour}
}

// newUnconnected puts a scanner together for tests of its parts. It connects to no
// server.
func newUnconnected(t *testing.T) *Scanner {
	t.Helper()
	settings := config.Defaults()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := New(Config{Settings: &settings, Store: storeOf(t, rdb, settings.Redis.Prefix), Instance: "me",
		Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	return s
}
