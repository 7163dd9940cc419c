package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// source is a fixture whose topics are set either in the file or in Consul.
type source struct {
	*fixture
	topic *shard.Topic // orders, for the test's own access
	// set changes keys of a topic, or makes the topic.
	set func(topic string, changes fleet.Topic)
	// spoil makes a topic's settings invalid, with a mistake in the key shards.
	spoil func(topic string)
}

func newFileSource(t *testing.T) *source {
	w := newFixture(t, map[string]fleet.Topic{})
	write := func(topic string, changes fleet.Topic) {
		w.settings.Topics[topic] = w.settings.Topics[topic].With(changes)
		w.write()
	}
	spoil := func(topic string) { write(topic, fleet.Topic{"shards": 99_999}) }
	return &source{fixture: w, set: write, spoil: spoil}
}

func newConsulSource(t *testing.T) *source {
	addr, prefix := servertest.Consul(t)
	return consulSource(t, addr, prefix)
}

func consulSource(t *testing.T, addr, prefix string) *source {
	w := newFixture(t, nil)
	w.settings.ConsulAddr, w.settings.ConsulPrefix = addr, prefix
	w.write()
	set := func(topic string, changes fleet.Topic) {
		t.Helper()
		must(t, w.scanner(append([]string{"topic", "set", topic}, changes.Pairs()...)...))
	}
	spoil := func(topic string) {
		t.Helper()
		pair := &consul.KVPair{Key: w.settings.ConsulPrefix + "/topics/" + topic, Value: []byte("shards: 99999\n")}
		_, err := w.kv().Put(pair, nil)
		check.OK(t, err)
	}
	return &source{fixture: w, set: set, spoil: spoil}
}

func (w *fixture) kv() *consul.KV {
	w.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: w.settings.ConsulAddr})
	check.OK(w.t, err)
	return client.KV()
}

// begin starts a fleet of two scanners with one topic.
func (w *source) begin() {
	w.t.Helper()
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	w.start(2)
	w.consume("orders.due")
}

// send schedules n tasks that are due soon.
func (w *source) send(topic, prefix string, n int) {
	w.t.Helper()
	w.schedule(orders(topic, prefix, n, time.Now().Add(100*time.Millisecond), 100*time.Millisecond, 0)...)
}

func (w *source) check() {
	w.t.Helper()
	if err := w.finish().Err(); err != nil {
		w.t.Error(err)
	}
}

// both runs a test with topics in the file and with topics in Consul.
func both(t *testing.T, test func(w *source)) {
	t.Parallel()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(newFileSource(t))
	})
	t.Run("consul", func(t *testing.T) {
		t.Parallel()
		servertest.Need(t, "consul")
		test(newConsulSource(t))
	})
}

// inForce changes keys of topic orders, and waits until no scanner uses the old settings.
// Then each scanner has applied the change, and has ended the tick that it was in.
func (w *source) inForce(changes fleet.Topic) {
	w.t.Helper()
	read := func(name string) []float64 {
		all := make([]float64, len(w.scanners))
		for i, s := range w.scanners {
			all[i] = readMetrics(w.t, s).sum(name)
		}
		return all
	}
	const index, ticks = "duefleet_config_applied_index", "duefleet_ticks_total"
	applied := read(index)
	w.set("orders", changes)
	if w.settings.ConsulAddr != "" {
		for i := range applied {
			applied[i] = float64(w.index("orders")) - 1
		}
	}
	check.Until(w.t, "every scanner to apply the change", rarely(func() bool { return above(read(index), applied) }))
	// A claim that isn't sent when its tick ends isn't sent any more. So once the tick under way and
	// the next one are over, every claim began after the change. A scanner in which the topic sleeps
	// has no claims and no ticks.
	ended := read(ticks)
	for i := range ended {
		ended[i]++
	}
	check.Until(w.t, "every scanner to end two ticks, or to sleep", rarely(func() bool {
		now, workers := read(ticks), read("duefleet_workers")
		for i := range now {
			if workers[i] == 0 {
				now[i] = math.Inf(1)
			}
		}
		return above(now, ended)
	}))
}

// above reports whether each value is more than its bound.
func above(all, bounds []float64) bool {
	for i := range all {
		if all[i] <= bounds[i] {
			return false
		}
	}
	return true
}

// TestPause: a paused topic delivers nothing and keeps everything; after resume it
// delivers everything.
func TestPause(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		w.send("orders", "first", 10)
		w.arrive("the tasks before the pause")
		w.inForce(fleet.Topic{"paused": true, "tick": "100ms"})
		count := w.recorder.Ledger.Count()
		w.send("orders", "second", 50)
		w.holds("nothing arrives while paused", time.Second, func() bool { return w.recorder.Ledger.Count() == count })
		if got := w.status().Topic("orders").Backlog; got != 50 {
			w.t.Errorf("the backlog is %d while paused, want 50", got)
		}
		w.set("orders", fleet.Topic{"paused": false})
		w.arrive("the tasks that waited")
		w.check()
	})
}

// TestRoute: a running topic's exchange and routing key change, and each task arrives by
// the old route or the new one.
func TestRoute(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		w.exchange("direct", "elsewhere", "elsewhere.due", "new.key")
		w.consume("elsewhere.due")
		w.send("orders", "before", 100)
		w.arrive("the tasks on the old route")
		w.schedule(orders("orders", "during", 3000, time.Now().Add(200*time.Millisecond), 3*time.Second, 0)...)
		w.inForce(fleet.Topic{"exchange": "elsewhere", "routing_key": "new.key", "tick": "100ms", "declare": map[string]any{
			"type": "direct", "queue": "elsewhere.due", "queue_type": "classic",
		}})
		w.send("orders", "after", 1)
		w.arrive("the tasks on both routes")
		w.check()
		last := w.delivered("after-000000")
		if len(last) != 1 || last[0].Exchange != "elsewhere" || last[0].RoutingKey != "new.key" {
			w.t.Errorf("the messages of a task after the change: %d, the first %+v; want one by elsewhere, new.key", len(last),
				last)
		}
	})
}

// TestHeaders: while tasks are delivered, a topic's messages become lean and then full
// again. Each arrives once in exactly one of the two forms, and after a change in the new
// one.
func TestHeaders(t *testing.T) {
	both(t, func(w *source) {
		w.tap = func(d fleet.Delivery) { isLean(w.t, d) }
		w.begin()
		w.send("orders", "before", 1)
		w.arrive("the task before the changes")
		w.schedule(orders("orders", "during", 3000, time.Now().Add(200*time.Millisecond), 3*time.Second, 0)...)
		w.inForce(fleet.Topic{"headers": "lean", "tick": "100ms"})
		w.send("orders", "lean", 1)
		w.arrive("the tasks during the change")
		w.inForce(fleet.Topic{"headers": "full", "tick": "200ms"})
		w.send("orders", "full", 1)
		w.arrive("the task after the changes")
		w.check()
		for id, lean := range map[string]bool{"before-000000": false, "lean-000000": true, "full-000000": false} {
			found := w.delivered(id)
			if len(found) != 1 || isLean(w.t, found[0]) != lean {
				w.t.Errorf("%d messages of task %s, the first %+v; want one, lean: %t", len(found), id, found, lean)
			}
		}
	})
}

// isLean reports whether a message is lean. It must be lean or full.
func isLean(t *testing.T, d fleet.Delivery) bool {
	t.Helper()
	headers := amqp.Table{"x-duefleet-due": d.Headers["x-duefleet-due"],
		"x-duefleet-scheduled": d.Headers["x-duefleet-scheduled"]}
	attempt, redelivered := d.Headers["x-duefleet-attempt"], d.Headers["x-duefleet-redelivered"]
	lean := d.AppId == ""
	if !lean {
		headers["x-duefleet-topic"] = "orders"
	}
	if !lean || attempt != nil && attempt != int32(1) {
		headers["x-duefleet-attempt"] = attempt
	}
	if !lean || redelivered == true {
		headers["x-duefleet-redelivered"] = redelivered
	}
	if !maps.Equal(d.Headers, headers) {
		t.Errorf("ID %q: app_id %q and headers\n%v, want\n%v", d.MessageId, d.AppId, d.Headers, headers)
	}
	return lean
}

// TestNewTopic: a topic that is added while the fleet runs is served.
func TestNewTopic(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		w.set("invoices", fleet.DeclaredTopic("invoices", fleet.Topic{"shards": 2}))
		w.consume("invoices.due")
		w.awaitTopic("invoices")
		w.send("invoices", "i", 50)
		w.send("orders", "o", 50)
		w.arrive("tasks of both topics")
		w.check()
	})
}

// TestShardsWhileEmpty: M goes up and down while no task is stored.
func TestShardsWhileEmpty(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		for _, m := range []int{7, 1, 16} {
			w.reshard(m)
			w.send("orders", fmt.Sprintf("m%d", m), 50)
			w.arrive("the tasks of the new shards")
			if got := len(w.status().Topic("orders").PerShard); got != m {
				w.t.Errorf("status shows %d shards, want %d", got, m)
			}
		}
		w.check()
	})
}

// TestShardsWhileFull: M goes up, down to one, and up again while tasks are stored,
// delivered, scheduled, rescheduled and cancelled. Each arrives exactly once.
func TestShardsWhileFull(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		w.schedule(orders("orders", "o", 4000, time.Now().Add(time.Second), 8*time.Second, 0)...)
		later := orders("orders", "later", 1500, time.Now().Add(time.Hour), time.Minute, 0)
		w.schedule(later...)
		far := w.far(500)
		done := make(chan error, 1)
		go func() { done <- w.changeDuring(later) }()
		for _, m := range []int{7, 1, 5} {
			w.reshard(m)
			w.send("orders", fmt.Sprint("m", m), 50)
		}
		check.Progress(w.t, "the changes of tasks", w.recorder.Ledger.Count, func() bool { return len(done) == 1 })
		check.OK(w.t, <-done)
		w.hasten(far)
		w.check()
	})
}

// TestShardCountHolds: with Consul the document's shard count stays in force. This holds
// even if something other than a document changes the placement, such as a restored
// backup of Redis.
func TestShardCountHolds(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	w.inForce(fleet.Topic{"tick": "100ms"})
	if began, err := w.ordersTopic().Begin(t.Context(), w.placement(), 2); err != nil || !began {
		t.Fatalf("a change to 2 shards began: %t, %v", began, err)
	}
	w.settled(4)
	w.send("orders", "o", 50)
	w.check()
}

// changeDuring makes tasks of the far future due soon, cancels some and schedules some
// more, one after the other.
func (w *source) changeDuring(later []fleet.Order) error {
	for i, o := range later {
		k := fleet.Key{Topic: o.Topic, ID: o.ID}
		soon := time.Now().Add(time.Second)
		var err error
		switch i % 3 {
		case 0:
			err = w.recorder.Cancel(w.t.Context(), k)
		case 1:
			err = w.recorder.Reschedule(w.t.Context(), k, soon)
		case 2:
			o.Due, o.Payload = soon, []byte("newer")
			err = w.recorder.Schedule(w.t.Context(), o, order(o.Topic, "more-"+o.ID, soon, "more"))
		}
		if err != nil {
			return fmt.Errorf("change %s: %w", o.ID, err)
		}
	}
	return nil
}

// reshard requests m shards, and returns when the change has ended.
func (w *source) reshard(m int) {
	w.t.Helper()
	w.set("orders", fleet.Topic{"shards": m})
	w.settled(m)
}

// TestTopicSet: topic set rejects mistakes before it writes, and shows what it changes.
// get, ls, pause, resume and rm work as documented.
func TestTopicSet(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	must(t, w.scanner("topic", "set", "orders", "shards=4", "exchange=orders"))
	out := must(t, w.scanner("topic", "set", "orders", "shards=8", "backoff.max=1m"))
	if !strings.Contains(out.Stdout, "shards") || !strings.Contains(out.Stdout, "4") ||
		!strings.Contains(out.Stdout, "8") {
		t.Errorf("set prints %q, want the difference from 4 to 8 shards", out.Stdout)
	}
	for _, bad := range []string{"shards=0", "shards=x", "nokey=1", "tick=5", "backoff.min=1h"} {
		key, _, _ := strings.Cut(bad, "=")
		out := w.scanner("topic", "set", "orders", bad)
		checkError(t, "topic set "+bad, out, 1, key)
	}
	must(t, w.scanner("topic", "pause", "orders"))
	out = must(t, w.scanner("topic", "get", "orders"))
	if !strings.Contains(out.Stdout, "shards: 8") || !strings.Contains(out.Stdout, "paused: true") {
		t.Errorf("get prints\n%s\nwant 8 shards, paused", out.Stdout)
	}
	must(t, w.scanner("topic", "resume", "orders"))
	if out = must(t, w.scanner("topic", "get", "orders")); strings.Contains(out.Stdout, "paused: true") {
		t.Errorf("get prints\n%s\nwant it resumed", out.Stdout)
	}
	if out = must(t, w.scanner("topic", "ls")); !strings.Contains(out.Stdout, "orders") {
		t.Errorf("ls prints %q, want the topic", out.Stdout)
	}
	checkError(t, "get a topic that isn't there", w.scanner("topic", "get", "nothere"), 3, "nothere")
	must(t, w.scanner("topic", "rm", "orders", "--yes"))
	checkError(t, "get after rm", w.scanner("topic", "get", "orders"), 3, "orders")
	checkError(t, "rm after rm", w.scanner("topic", "rm", "orders", "--yes"), 3, "unknown topic", "orders")
}

// TestANewTopicIsAskedAboutOnATerminal: if a new topic's name resembles an existing one,
// topic set creates the topic only after a yes.
func TestANewTopicIsAskedAboutOnATerminal(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	must(t, w.scanner("topic", "set", "orders", "shards=4", "exchange=orders"))
	question := "create the new topic order; did you mean orders, which exists? create it? [y/N]"
	set := []string{"topic", "set", "order", "rate=5", "exchange=orders"}
	out := w.answer("n\n", set...)
	if text := out.Stdout + out.Stderr; out.Code != 1 || !strings.Contains(text, question) {
		t.Errorf("code %d, %q: want 1 and the question", out.Code, text)
	}
	checkError(t, "get of a topic whose question was answered with no", w.scanner("topic", "get", "order"), 3, "order")
	if out = w.answer("y\n", set...); out.Code != 0 {
		t.Errorf("code %d after a yes: %s", out.Code, out.Stderr)
	}
	must(t, w.scanner("topic", "get", "order"))
}

// TestTopicSetTellsWhatComesOfIt: topic set reports that a new document stops its topic.
// The metrics and /readyz report it, too, until the document is corrected.
func TestTopicSetTellsWhatComesOfIt(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	for _, c := range []struct{ setting, undo, reason, words string }{
		{"declare.type=topic", "declare.type=direct", "precondition_failed", "406 PRECONDITION_FAILED"},
		{"exchange=nowhere", "exchange=orders", "not_found", "404 NOT_FOUND"},
	} {
		if c.reason == "not_found" {
			must(t, w.scanner("topic", "set", "orders", "declare="))
		}
		checkError(t, "topic set "+c.setting, w.scanner("topic", "set", "orders", c.setting), 1, "orders",
			"blocked by 2 scanners", c.words)
		checkError(t, "topic resume", w.scanner("topic", "resume", "orders"), 1, c.words)
		blocked := fmt.Sprintf(`duefleet_topic_blocked{reason="%s",topic="orders"} 1`, c.reason)
		for _, s := range w.scanners {
			check.Until(t, "the metrics to tell", rarely(func() bool { return strings.Contains(get(s, "/metrics"), blocked) }))
			w.awaitAnswer(s, "ready", "routes: down (optional): topic orders: ")
		}
		must(t, w.scanner("topic", "pause", "orders"))
		if out := must(t, w.scanner("topic", "set", "orders", c.undo)); !strings.Contains(out.Stdout,
			"applied by 2 scanners") {
			t.Errorf("mended: %s", out.Stdout)
		}
		for _, s := range w.scanners {
			check.Until(t, "the metrics to tell that it is corrected", rarely(func() bool {
				return readMetrics(t, s).sum("duefleet_topic_blocked") == 0
			}))
			w.awaitAnswer(s, "routes: ok")
		}
		must(t, w.scanner("topic", "resume", "orders"))
	}
	w.send("orders", "o", 10)
	w.check()
}

// TestHangup: SIGHUP makes scanners re-read the file at once. Without a signal they would
// wait until the file stops changing.
func TestHangup(t *testing.T) {
	t.Parallel()
	w := newFileSource(t)
	w.begin()
	w.settings.Topics["orders"]["shards"] = 2
	w.write()
	rest := w.keepWriting()
	for _, s := range w.scanners {
		check.OK(t, s.Signal(syscall.SIGHUP))
	}
	for _, s := range w.scanners {
		check.Until(t, "2 shards to be applied", rarely(func() bool {
			return strings.Contains(w.log(s),
				"key=shards old=4 new=2")
		}))
	}
	rest()
	check.Until(w.t, "2 shards", rarely(func() bool { return w.status().Topic("orders").Shards == 2 }))
	check.OK(t, os.Remove(w.config))
	for _, s := range w.scanners {
		check.OK(t, s.Signal(syscall.SIGHUP))
	}
	w.send("orders", "o", 10)
	w.arrive("tasks although the file is gone")
	w.write()
	w.check()
}

// TestHangupWithConsul: SIGHUP doesn't end a scanner whose topics are in Consul. The
// scanner keeps delivering, and logs which changes of its file need a restart, without
// secrets.
func TestHangupWithConsul(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	changed := w.as("changed.yaml", map[string]fleet.Topic{"redis": {"password": "S3CRET"}})
	changed.settings.RedisPrefix = "elsewhere"
	changed.write()
	text, err := os.ReadFile(changed.config)
	if err == nil {
		err = fleet.WriteFile(w.config, text)
	}
	check.OK(t, err)
	s := w.scanners[0]
	check.OK(t, s.Signal(syscall.SIGHUP))
	check.Until(t, "the log to say what a restart would change",
		rarely(func() bool { return strings.Contains(w.log(s), "key=rabbitmq.urls") }))
	for _, want := range []string{"documents are always watched", "key=redis.password", "key=redis.prefix",
		"configured=elsewhere"} {
		if !strings.Contains(w.log(s), want) {
			t.Errorf("the log says nothing of %q", want)
		}
	}
	if strings.Contains(w.log(s), "S3CRET") {
		t.Error("the log shows a password")
	}
	w.write()
	w.send("orders", "after", 20)
	w.check()
}

// keepWriting changes a comment in the file, more often than scanners check the file,
// until the caller calls rest.
func (w *fixture) keepWriting() (rest func()) {
	w.t.Helper()
	text, err := os.ReadFile(w.config)
	check.OK(w.t, err)
	ctx, stop := context.WithCancel(w.t.Context())
	write := func(n int) {
		next := w.config + ".next"
		err := errors.Join(os.WriteFile(next, fmt.Appendf(text, "# %d\n", n), 0o600), os.Rename(next, w.config))
		if err != nil {
			w.t.Error(err)
		}
	}
	write(0)
	var writing sync.WaitGroup
	writing.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				write(n)
			}
		}
	})
	return func() {
		stop()
		writing.Wait()
	}
}
