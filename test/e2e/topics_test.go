package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/test/fleet"
)

// wish is how a test sets topics: in the file, or in Consul.
type wish struct {
	*world
	topic *shard.Topic // orders, for the test's own eyes
	// set changes keys of a topic, or makes it.
	set func(topic string, changes fleet.Topic)
	// spoil makes a topic's settings unacceptable, naming the key shards.
	spoil func(topic string)
}

func newFileWish(t *testing.T) *wish {
	w := newWorld(t, map[string]fleet.Topic{})
	write := func(topic string, changes fleet.Topic) {
		w.settings.Topics[topic] = w.settings.Topics[topic].With(changes)
		w.write()
	}
	spoil := func(topic string) { write(topic, fleet.Topic{"shards": 99_999}) }
	return &wish{world: w, set: write, spoil: spoil}
}

func newConsulWish(t *testing.T) *wish {
	addr, prefix := stacktest.Consul(t)
	return consulWish(t, addr, prefix)
}

func consulWish(t *testing.T, addr, prefix string) *wish {
	w := newWorld(t, nil)
	w.settings.ConsulAddr, w.settings.ConsulPrefix = addr, prefix
	w.write()
	set := func(topic string, changes fleet.Topic) {
		t.Helper()
		must(t, w.scanner(append([]string{"topic", "set", topic}, changes.Pairs()...)...))
	}
	spoil := func(topic string) {
		t.Helper()
		pair := &consul.KVPair{Key: w.settings.ConsulPrefix + "/topics/" + topic, Value: []byte("shards: 99999\n")}
		if _, err := w.kv().Put(pair, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &wish{world: w, set: set, spoil: spoil}
}

func (w *world) kv() *consul.KV {
	w.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: w.settings.ConsulAddr})
	if err != nil {
		w.t.Fatal(err)
	}
	return client.KV()
}

// begin starts a fleet of two that serves one topic.
func (w *wish) begin() {
	w.t.Helper()
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	w.start(2)
	w.consume("orders.due")
}

// send schedules n tasks that are due at once.
func (w *wish) send(topic, prefix string, n int) {
	w.t.Helper()
	w.schedule(orders(topic, prefix, n, time.Now().Add(100*time.Millisecond), 100*time.Millisecond, 0)...)
}

func (w *wish) arrive(what string) {
	w.t.Helper()
	w.await(what, func() bool { return w.recorder.Ledger.Missing() == 0 })
}

func (w *wish) check() {
	w.t.Helper()
	if err := w.finish().Err(); err != nil {
		w.t.Error(err)
	}
}

// both runs a test with topics in the file and with topics in Consul.
func both(t *testing.T, test func(w *wish)) {
	t.Parallel()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(newFileWish(t))
	})
	t.Run("consul", func(t *testing.T) {
		t.Parallel()
		stacktest.Need(t, "consul")
		test(newConsulWish(t))
	})
}

// TestPause: a paused topic delivers nothing and keeps everything; resumed, it
// delivers all of it.
func TestPause(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		w.send("orders", "first", 10)
		w.arrive("the tasks before the pause")
		w.set("orders", fleet.Topic{"paused": true})
		// That the pause has come to every scanner shows in a task that stays.
		n := 0
		w.await("the pause", func() bool {
			n++
			before := w.recorder.Ledger.Count()
			w.send("orders", fmt.Sprintf("probe-%d", n), 4)
			return w.stays(time.Second, func() bool { return w.recorder.Ledger.Count() == before })
		})
		count := w.recorder.Ledger.Count()
		w.send("orders", "second", 50)
		w.holds("nothing arrives while paused", 2*time.Second, func() bool { return w.recorder.Ledger.Count() == count })
		if got := w.status().Topic("orders").Backlog; got < 50 {
			w.t.Errorf("the backlog is %d while paused, want 50 or more", got)
		}
		w.set("orders", fleet.Topic{"paused": false})
		w.arrive("the tasks that waited")
		w.check()
	})
}

// TestRoute: a topic's exchange and routing key change while it runs, and each
// task arrives by the old route or the new one.
func TestRoute(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		w.exchange("direct", "elsewhere", "elsewhere.due", "new.key")
		w.consume("elsewhere.due")
		w.send("orders", "before", 100)
		w.arrive("the tasks on the old route")
		all := orders("orders", "during", 3000, time.Now().Add(200*time.Millisecond), 3*time.Second, 0)
		w.schedule(all...)
		w.set("orders", fleet.Topic{"exchange": "elsewhere", "routing_key": "new.key", "declare": map[string]any{
			"type": "direct", "queue": "elsewhere.due", "queue_type": "classic",
		}})
		w.arrive("the tasks on both routes")
		w.check()
		last := w.delivered(all[len(all)-1].ID)
		if len(last) != 1 || last[0].Exchange != "elsewhere" || last[0].RoutingKey != "new.key" {
			w.t.Errorf("the last task's messages: %d, the first %+v; want one by elsewhere, new.key", len(last), last)
		}
	})
}

// TestNewTopic: a topic that is added while the fleet runs is served.
func TestNewTopic(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		w.set("invoices", fleet.DeclaredTopic("invoices", fleet.Topic{"shards": 2}))
		w.consume("invoices.due")
		w.await("the new topic", func() bool { return w.status().Topic("invoices").Shards == 2 })
		w.send("invoices", "i", 50)
		w.send("orders", "o", 50)
		w.arrive("tasks of both topics")
		w.check()
	})
}

// TestShardsWhileEmpty: M goes up and down while nothing is stored.
func TestShardsWhileEmpty(t *testing.T) {
	both(t, func(w *wish) {
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

// TestShardsWhileFull: M goes up and down while tasks are stored, delivered,
// scheduled, moved and cancelled; each arrives exactly once.
func TestShardsWhileFull(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		start := time.Now().Add(time.Second)
		all := orders("orders", "o", 6000, start, 8*time.Second, 0)
		w.schedule(all...)
		later := orders("orders", "later", 3000, start.Add(time.Minute), time.Minute, 0)
		w.schedule(later...)
		done := make(chan error, 1)
		go func() { done <- w.changeDuring(later) }()
		for _, m := range []int{7, 3} {
			w.reshard(m)
		}
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
		w.check()
	})
}

// changeDuring moves tasks of the far future near, cancels some and schedules
// some more, one after the other.
func (w *wish) changeDuring(later []fleet.Order) error {
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

// reshard wishes for m shards and returns once the change is over.
func (w *wish) reshard(m int) {
	w.t.Helper()
	w.set("orders", fleet.Topic{"shards": m})
	w.await(fmt.Sprintf("%d shards", m), func() bool {
		s := w.status().Topic("orders")
		return s.Shards == m && s.Phase == "stable"
	})
}

// TestBrokenDocument: settings with a mistake change nothing, and everybody who
// looks is told which key is wrong: by status, by the metrics, by the note in
// Consul. Another topic's change is held up by it only where they share a file.
func TestBrokenDocument(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		w.send("orders", "before", 10)
		w.arrive("the tasks before")
		w.spoil("orders")
		w.await("status to name the mistake", func() bool {
			members := 0
			for _, m := range w.status().Fleet {
				if strings.Contains(fmt.Sprint(m.Errors), "shards") {
					members++
				}
			}
			return members == 2
		})
		for _, s := range w.scanners {
			if n := readMetrics(w.t, s).sum("duefleet_config_errors_total"); n < 1 {
				w.t.Errorf("config_errors_total is %v, want 1 or more", n)
			}
		}
		if w.settings.ConsulAddr != "" {
			w.await("the notes in Consul", func() bool { return w.notes("shards") == 2 })
		}
		if got := w.status().Topic("orders").Shards; got != 4 {
			w.t.Errorf("the topic has %d shards, want 4 as before", got)
		}
		w.send("orders", "meanwhile", 10)
		w.arrive("the tasks under the old settings")
		w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 5}))
		w.await("the mended settings", func() bool { return w.status().Topic("orders").Shards == 5 })
		w.await("status without the mistake", func() bool {
			for _, m := range w.status().Fleet {
				if len(m.Errors) > 0 {
					return false
				}
			}
			return true
		})
		w.send("orders", "after", 10)
		w.check()
	})
}

// notes counts the scanners' notes in Consul that hold a word.
func (w *world) notes(word string) int {
	w.t.Helper()
	pairs, _, err := w.kv().List(w.settings.ConsulPrefix+"/status/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, p := range pairs {
		if strings.Contains(string(p.Value), word) {
			n++
		}
	}
	return n
}

// TestTopicSet: what is wrong is refused before it is written, what is right
// shows its difference; get, ls, pause, resume and rm do what they say.
func TestTopicSet(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	must(t, w.scanner("topic", "set", "orders", "shards=4", "exchange=orders"))
	out := must(t, w.scanner("topic", "set", "orders", "shards=8", "backoff.max=1m"))
	if !strings.Contains(out.Stdout, "shards") || !strings.Contains(out.Stdout, "4") || !strings.Contains(out.Stdout, "8") {
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
	checkError(t, "get a topic that isn't there", w.scanner("topic", "get", "nothere"), 1, "nothere")
	must(t, w.scanner("topic", "rm", "orders"))
	checkError(t, "get after rm", w.scanner("topic", "get", "orders"), 1, "orders")
}

// TestHangup: SIGHUP re-reads the file, also one that was mended by no more
// than its content.
func TestHangup(t *testing.T) {
	t.Parallel()
	w := newFileWish(t)
	w.begin()
	w.settings.Topics["orders"]["shards"] = 2
	w.write()
	for _, s := range w.scanners {
		if err := s.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	w.await("2 shards", func() bool { return w.status().Topic("orders").Shards == 2 })
	if err := os.Remove(w.config); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.scanners {
		if err := s.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	w.send("orders", "o", 10)
	w.arrive("tasks although the file is gone")
	w.write()
	w.check()
}
