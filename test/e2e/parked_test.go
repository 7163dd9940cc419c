package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestUnroutable: a task without a queue is tried max_attempts times, and then parked
// with the reason until an operator replays or purges it.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": {
		"shards": 4, "exchange": "orders", "routing_key": "order.due",
		"max_attempts": 3, "backoff": map[string]any{"min": "20ms", "max": "50ms"},
	}})
	w.exchange("direct", "orders", "", "")
	w.start(2)
	before := time.Now().Truncate(time.Millisecond)
	all := orders("orders", "o", 10, before.Add(time.Second), 100*time.Millisecond, 0)
	w.schedule(all...)
	stored := time.Now().Add(time.Millisecond)
	check.Until(w.t, "all to be parked", rarely(func() bool { return w.status().Topic("orders").Parked == 10 }))
	w.checkParked(10, 3)
	if got := w.get("orders", "o-000000"); got.State != "parked" || got.Attempts != 3 || got.Reason == "" {
		t.Errorf("get: %+v, want it parked after 3 attempts with a reason", got)
	}

	ch := w.channel()
	w.queue(ch, "orders", "orders.due", "order.due")
	w.consume("orders.due")
	must(t, w.scanner("parked", "replay", "--topic", "orders", "--id", "o-000000"))
	check.Until(w.t, "the one that is replayed", func() bool { return len(w.delivered("o-000000")) == 1 })
	w.checkParked(9, 3)
	must(t, w.scanner("parked", "purge", "--topic", "orders", "--id", "o-000001"))
	w.checkParked(8, 3)
	if err := w.recorder.Cancel(t.Context(), fleet.Key{Topic: "orders", ID: "o-000002"}); err != nil {
		t.Errorf("cancel a parked task: %v", err)
	}
	must(t, w.scanner("parked", "replay", "--topic", "orders", "--all", "--yes"))
	w.awaitCount(8)
	if left := w.list("parked", "ls", "--topic", "orders"); len(left) != 0 {
		t.Errorf("parked ls: %+v, want nothing", left)
	}
	must(t, w.producer("cancel", "--topic", "orders", "--id-prefix", "none", "--yes"))
	if out := w.producer("get", "--topic", "orders", "--id", "o-000001"); out.Code != 3 {
		t.Errorf("get a purged task: code %d, want 3", out.Code)
	}
	for d := range w.messages.all() {
		var i int
		for all[i].ID != d.MessageId {
			i++
		}
		want{Order: all[i], storedAfter: before, storedBefore: stored, attempt: 1}.check(t, d)
	}
}

// TestAttempts: a task is returned first and gets a queue later. It arrives with the
// number of its attempt and isn't marked as a repeat.
func TestAttempts(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": {
		"shards": 1, "exchange": "orders", "routing_key": "order.due",
		"max_attempts": 1000, "backoff": map[string]any{"min": "500ms", "max": "500ms"},
	}})
	w.exchange("direct", "orders", "", "")
	w.start(1)
	before := time.Now().Truncate(time.Millisecond)
	o := order("orders", "a", before.Add(time.Second), "p")
	w.schedule(o)
	stored := time.Now().Add(time.Millisecond)
	check.Until(w.t, "the first return", func() bool {
		got, err := w.recorder.Client.Get(t.Context(), "orders", "a")
		return err == nil && got.Attempt >= 2 // get shows the next attempt
	})
	w.queue(w.channel(), "orders", "orders.due", "order.due")
	w.consume("orders.due")
	if err := w.finish().Err(); err != nil {
		t.Error(err)
	}
	for d := range w.messages.all() {
		attempt, _ := d.Headers["x-duefleet-attempt"].(int32)
		if attempt < 2 {
			t.Errorf("attempt %v, want 2 or more", d.Headers["x-duefleet-attempt"])
		}
		want{Order: o, storedAfter: before, storedBefore: stored, attempt: attempt}.check(t, d)
	}
}

// TestMissingExchange: a topic with a missing exchange loses no task and doesn't delay
// another topic.
func TestMissingExchange(t *testing.T) {
	t.Parallel()
	w := newGoodAndBad(t)
	w.awaitCount(400)
	w.exchange("direct", "missing", "bad.due", "k")
	w.consume("bad.due")
	if err := w.finish().Err(); err != nil {
		t.Error(err)
	}
}

// newGoodAndBad returns a running fleet with 400 tasks of a good topic and 200 of a topic
// with a missing exchange.
func newGoodAndBad(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t, map[string]fleet.Topic{
		"good": fleet.DeclaredTopic("good", nil),
		"bad": {"shards": 2, "exchange": "missing", "routing_key": "k", "backoff": map[string]any{"min": "50ms",
			"max": "200ms"}},
	})
	w.start(2)
	w.consume("good.due")
	start := time.Now().Add(500 * time.Millisecond)
	w.schedule(orders("bad", "b", 200, start, time.Second, 0)...)
	w.schedule(orders("good", "g", 400, start, 3*time.Second, 0)...)
	return w
}

// checkParked checks the number of parked tasks, and their attempts and reasons.
func (w *fixture) checkParked(n, attempts int) {
	w.t.Helper()
	for _, verb := range [][]string{{"parked", "ls"}, {"tasks", "ls", "--topic", "orders", "--state", "parked"}} {
		all := w.list(verb...)
		if len(all) != n {
			w.t.Fatalf("%q: %d tasks, want %d: %+v", verb, len(all), n, all)
		}
		for _, p := range all {
			if p.ID == "" || p.Attempts != attempts || !strings.Contains(p.Reason, "NO_ROUTE") {
				w.t.Errorf("%q: %+v, want %d attempts and the broker's NO_ROUTE", verb, p, attempts)
			}
		}
	}
}

// listed is the part of an element in the output of `parked ls` and `tasks ls` that tests
// read.
type listed struct {
	ID, Reason string
	Attempts   int
}

func (w *fixture) list(verb ...string) (all []listed) {
	w.t.Helper()
	out := must(w.t, w.scanner(append(verb, "-o", "json")...))
	if err := json.Unmarshal([]byte(out.Stdout), &all); err != nil {
		w.t.Fatalf("%q: %v: %s", verb, err, out.Stdout)
	}
	return all
}

// stored is the part of the output of producer get that tests read.
type stored struct {
	State    string
	Attempts int
	Reason   string
}

func (w *fixture) get(topic, id string) stored {
	w.t.Helper()
	out := must(w.t, w.producer("get", "--topic", topic, "--id", id, "-o", "json"))
	var s stored
	check.OK(w.t, json.Unmarshal([]byte(out.Stdout), &s))
	return s
}
