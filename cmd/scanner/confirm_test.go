package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// operator calls verbs with a configuration file and a Redis prefix of its own.
type operator struct {
	t      *testing.T
	config string
	more   string // the configuration except Redis
	addr   string // of Redis
	prefix string
	rdb    redis.UniversalClient
	store  *shard.Store
}

// writeFile writes a file in a folder of its own, and returns its path.
func writeFile(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newOperator(t *testing.T, more string) *operator {
	t.Helper()
	r := fixture.New(t)
	o := &operator{t: t, addr: r.Addr, prefix: r.Prefix, config: filepath.Join(t.TempDir(), "config.yaml"),
		rdb: r.Client, store: r.Store}
	o.more = more
	o.configure(t, fmt.Sprintf("redis: {addrs: ['%s'], prefix: '%s'}\n", r.Addr, r.Prefix))
	return o
}

// newBrokerOperator returns an operator whose topics are in Consul, and the URL of RabbitMQ.
func newBrokerOperator(t *testing.T) (o *operator, rabbitmq string) {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	rabbitmq = servertest.RabbitMQ(t)
	return newOperator(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n", addr, prefix,
		rabbitmq)), rabbitmq
}

// configure writes the configuration file: first the section about Redis, then o.more.
func (o *operator) configure(t *testing.T, redis string) {
	t.Helper()
	if err := os.WriteFile(o.config, []byte(redis+o.more), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve creates a topic, as a scanner does.
func (o *operator) serve(topic string, shards int) {
	o.t.Helper()
	if _, err := o.store.Topic(topic).Ensure(o.t.Context(), shards); err != nil {
		o.t.Fatal(err)
	}
}

// call runs a verb and returns its exit code and its output to stdout and stderr.
func (o *operator) call(args ...string) (code int, text string) {
	o.t.Helper()
	var out bytes.Buffer
	code = run(o.t.Context(), append(args, "--config", o.config), &out, &out)
	return code, out.String()
}

// wants calls a verb and checks its exit code and a part of its output.
func (o *operator) wants(code int, part string, args ...string) {
	o.t.Helper()
	if got, text := o.call(args...); got != code || !strings.Contains(text, part) {
		o.t.Errorf("scanner %s: code %d, %q; want %d, and %q", strings.Join(args, " "), got, text, code, part)
	}
}

// TestScriptsDeleteWithYesAlone: without a terminal every verb that deletes says what it
// would delete, deletes nothing, and ends with 2. With --yes it deletes. For a topic that
// never existed, or was removed, it ends with 3.
func TestScriptsDeleteWithYesAlone(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	for _, yes := range []string{"--yes=false", "--yes"} {
		o.wants(cli.NotFound, "unknown topic", "topic", "rm", "orders", yes)
		o.wants(cli.NotFound, "unknown topic", "topic", "rm", "orders", "--purge", yes)
		o.wants(cli.NotFound, "unknown topic", "parked", "purge", "--topic", "orders", "--all", yes)
	}
	topic := o.store.Topic("orders")
	if _, err := topic.Ensure(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	stored := func(want int64) {
		t.Helper()
		stats, err := topic.Stats(t.Context(), 1)
		if err != nil || stats[0].Pending != want {
			t.Fatalf("got %+v, %v, want %d tasks", stats, err, want)
		}
	}
	o.park("one", "two")
	o.wants(cli.Usage, "delete all that is parked in topic orders: 2 tasks", "parked", "purge", "--topic", "orders",
		"--all")
	o.wants(cli.Failed, "holds 2 tasks", "topic", "rm", "orders")
	o.wants(cli.Usage, "delete topic orders with 2 tasks", "topic", "rm", "orders", "--purge")
	stored(2)
	o.wants(cli.NotFound, "not parked", "parked", "purge", "--topic", "orders", "--id", "three")
	o.wants(cli.Done, "purged 1", "parked", "purge", "--topic", "orders", "--id", "two")
	o.wants(cli.Done, "purged 1", "parked", "purge", "--topic", "orders", "--all", "--yes")
	stored(0)
	o.wants(cli.Usage, "delete topic orders with 0 tasks", "topic", "rm", "orders")
	if _, err := topic.Placement(t.Context()); err != nil {
		t.Fatalf("after a removal that nobody confirmed: %v", err)
	}
	o.park("three")
	o.wants(cli.Done, "removed, with 1 tasks", "topic", "rm", "orders", "--purge", "--yes")
	o.wants(cli.NotFound, "unknown topic", "topic", "rm", "orders", "--purge", "--yes")
}

// park adds parked tasks with unreadable records to shard 0 of topic orders.
func (o *operator) park(ids ...string) {
	o.t.Helper()
	for _, id := range ids {
		err := errors.Join(
			o.rdb.HSet(o.t.Context(), o.prefix+":task:{orders:0}", id, "record").Err(),
			o.rdb.ZAdd(o.t.Context(), o.prefix+":due:{orders:0}", redis.Z{Score: math.Inf(1), Member: id}).Err(),
		)
		if err != nil {
			o.t.Fatal(err)
		}
	}
}
