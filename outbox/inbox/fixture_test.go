package inbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/inbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		victim(text)
	}
	if text := os.Getenv(roleEnv); text != "" {
		os.Exit(perform(text))
	}
	dbtest.Main(m)
}

var errTest = errors.New("the handler fails after its commit")

const (
	orders = fixture.Orders
	queue  = "orders.due"
)

// place is where a consumer finds its servers.
type place struct {
	Kind                              dbtest.Kind
	Database, RabbitMQ, Redis, Prefix string
}

// dialect returns the dialect of a kind of database.
func dialect(kind dbtest.Kind) outbox.Dialect {
	return map[dbtest.Kind]outbox.Dialect{dbtest.PostgreSQL: outbox.PostgreSQL, dbtest.MariaDB: outbox.MariaDB}[kind]
}

// inbox returns the inbox of the place.
func (p place) inbox() inbox.Inbox { return inbox.Inbox{Dialect: dialect(p.Kind)} }

// effect inserts into effects in the transaction of the mark, unless the mark is there.
func (p place) effect(ctx context.Context, db *sql.DB, t task.Task, step string) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	first, err = p.inbox().Once(ctx, tx, t, step)
	if err != nil {
		return false, err
	}
	if first {
		insert := dbtest.SQL(db, `INSERT INTO effects (id, step) VALUES ($1, $2)`)
		if _, err := tx.ExecContext(ctx, insert, t.ID, step); err != nil {
			return false, err
		}
	}
	return first, tx.Commit()
}

// consumer returns a consumer that remembers no deliveries itself.
func (p place) consumer(handle consumer.Handler, change ...func(*consumer.Config)) (*consumer.Consumer, error) {
	cfg := consumer.Config{
		URLs: []string{p.RabbitMQ}, Queue: queue, Options: fixture.Options(p.Redis), Prefix: p.Prefix, Remember: -1,
		Handler: handle, Policy: consumer.Fixed(time.Millisecond, 5), Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	return consumer.New(cfg)
}

// config writes a scanner's configuration and returns its path.
func (p place) config(t *testing.T, dir string, changes fleet.Topic) string {
	t.Helper()
	settings := fleet.Settings{RedisAddr: p.Redis, RedisPrefix: p.Prefix, RabbitMQURL: p.RabbitMQ,
		Topics: map[string]fleet.Topic{orders: fleet.DeclaredTopic(orders, fleet.Topic{"shards": 2}.With(changes))}}
	path := filepath.Join(dir, "config.yaml")
	check.OK(t, fleet.WriteConfig(path, settings.Document()))
	return path
}

// victimEnv is the environment variable that makes a process of this test binary a victim.
// That is a consumer that is killed after the commit of its first handler.
const victimEnv = "DUEFLEET_TEST_VICTIM"

func victim(text string) {
	var p place
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	db, err := sql.Open(string(p.Kind), p.Database)
	if err != nil {
		panic(err)
	}
	c, err := p.consumer(func(ctx context.Context, d task.Delivery) error {
		if _, err := p.effect(ctx, db, d.Task, ""); err != nil {
			panic(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	})
	if err != nil {
		panic(err)
	}
	panic(c.Run(context.Background()))
}

// sandbox is a database with a table of effects, and a fleet that delivers.
type sandbox struct {
	t *testing.T
	place
	db     *sql.DB
	topic  *shard.Topic
	client *producer.Client
}

// each runs a test in a sandbox of each kind of database.
func each(t *testing.T, test func(t *testing.T, s *sandbox)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) { test(t, newSandbox(t, kind)) })
}

func newSandbox(t *testing.T, kind dbtest.Kind) *sandbox {
	t.Helper()
	redis := fixture.New(t)
	s := &sandbox{t: t, topic: redis.Orders(),
		place: place{kind, dbtest.Database(t, kind), servertest.RabbitMQ(t), redis.Addr, redis.Prefix}}
	s.db = dbtest.Open(t, s.Database)
	check.OK(t, dialect(kind).Migrate(t.Context(), s.db))
	dbtest.Exec(t, s.db, `CREATE TABLE effects (id varchar(9), step varchar(9))`)
	var err error
	s.client, err = producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	return s
}

// deliver runs a scanner.
func (s *sandbox) deliver() {
	s.t.Helper()
	path := s.config(s.t, s.t.TempDir(), nil)
	check.Background(s.t, "the scanner", func(ctx context.Context) error { return member.Run(ctx, path) })
	check.Until(s.t, "the topic is served", func() bool {
		_, err := s.topic.Placement(s.t.Context())
		return err == nil
	})
}

// consume runs a consumer until the test ends.
func (s *sandbox) consume(handle consumer.Handler) {
	s.t.Helper()
	c, err := s.consumer(handle)
	check.OK(s.t, err)
	check.Background(s.t, "the consumer", c.Run)
}

func (s *sandbox) effects() int {
	s.t.Helper()
	return dbtest.Value[int](s.t, s.db, `SELECT count(*) FROM effects`)
}

func (s *sandbox) schedule(id string) {
	s.t.Helper()
	_, err := s.client.Schedule(s.t.Context(), producer.Request{Topic: orders, ID: id, When: producer.Now()})
	check.OK(s.t, err)
}
