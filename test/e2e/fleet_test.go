package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestExactlyOnce: three scanners serve two topics with their own exchanges and routing
// keys. 20,000 tasks are due over ten seconds; some are cancelled, rescheduled or
// replaced while the topics are paused. Each newest version arrives exactly once, not
// early, with every property. Cancelled tasks don't arrive.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	const tasks = 20_000
	w := newPair(t)
	w.pause(true)
	w.start(3)
	w.consume("orders.due", "invoices.due")

	before := time.Now().Truncate(time.Millisecond)
	all := ordersOfPair(tasks, before.Add(5*time.Second))
	w.schedule(all...)
	newest := w.changeSome(all)
	w.pause(false)
	// These tasks fall due while the topics run, however long the scheduling takes.
	ahead := orders("orders", "a", tasks/20, time.Now().Add(2*time.Second), 3*time.Second, 100)
	w.schedule(ahead...)
	for _, o := range ahead {
		newest[fleet.Key{Topic: o.Topic, ID: o.ID}] = o
	}
	stored := time.Now().Add(time.Millisecond)

	r := w.finish()
	t.Logf("%d promised, %d optional", r.Promised, r.Optional)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	// The ledger promises nothing about a task that was due before it was stored, because it
	// might have been stored twice.
	if r.Promised != len(newest) {
		t.Errorf("%d promised, want the %d that were not cancelled", r.Promised,
			len(newest))
	}
	for d := range w.messages.all() {
		o, ok := newest[fleet.Key{Topic: d.Type, ID: d.MessageId}]
		if !ok {
			t.Errorf("topic %s, ID %q arrived and was never scheduled, or cancelled", d.Type, d.MessageId)
			continue
		}
		want{Order: o, storedAfter: before, storedBefore: stored, attempt: 1}.check(t, d)
	}
}

// newPair returns a fixture with two topics that have their own exchanges and routing
// keys.
func newPair(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t, map[string]fleet.Topic{
		"orders":   fleet.DeclaredTopic("orders", nil),
		"invoices": {"shards": 4, "exchange": "billing", "routing_key": "invoice.eu.due"},
	})
	w.exchange("topic", "billing", "invoices.due", "invoice.#")
	return w
}

// ordersOfPair returns tasks of both topics, due over ten seconds after start.
func ordersOfPair(tasks int, start time.Time) []fleet.Order {
	const over = 10 * time.Second
	return append(
		orders("orders", "o", tasks/2, start, over, 100),
		orders("invoices", "i", tasks/2, start, over, 100)...,
	)
}

// changeSome changes some tasks before they are due: one in twenty each is cancelled,
// rescheduled, replaced and made earlier. It returns the newest versions.
func (w *fixture) changeSome(all []fleet.Order) map[fleet.Key]fleet.Order {
	w.t.Helper()
	newest := map[fleet.Key]fleet.Order{}
	var g errgroup.Group
	g.SetLimit(8)
	for i, o := range all {
		k := fleet.Key{Topic: o.Topic, ID: o.ID}
		newest[k] = o
		switch i % 20 {
		case 0:
			delete(newest, k)
			g.Go(func() error { return w.recorder.Cancel(w.t.Context(), k) })
		case 1:
			o.Due = o.Due.Add(1234 * time.Millisecond)
			newest[k] = o
			g.Go(func() error { return w.recorder.Reschedule(w.t.Context(), k, o.Due) })
		case 2:
			o.Due, o.Payload, o.Headers = o.Due.Add(-500*time.Millisecond), []byte("newer"), map[string]string{"tenant": "t-1"}
			newest[k] = o
			g.Go(func() error { return w.recorder.Schedule(w.t.Context(), o) })
		case 3:
			o.Payload, o.ContentType = []byte(`{"newer":true}`), "application/json"
			newest[k] = o
			g.Go(func() error { return w.recorder.Schedule(w.t.Context(), o) })
		}
	}
	check.OK(w.t, g.Wait())
	return newest
}

// TestChangesAtTheLastMoment: tasks are cancelled and rescheduled at the moment when they
// are due. Each version arrives at most once, and a later version always arrives.
func TestChangesAtTheLastMoment(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(2)
	w.consume("orders.due")
	all := orders("orders", "o", 600, time.Now().Add(time.Second), 3*time.Second, 0)
	w.schedule(all...)
	for i, o := range all {
		k := fleet.Key{Topic: o.Topic, ID: o.ID}
		check.Until(w.t, "its due time", func() bool { return time.Until(o.Due) < 2*time.Millisecond })
		var err error
		switch i % 3 {
		case 0:
			err = w.recorder.Cancel(t.Context(), k)
		case 1:
			err = w.recorder.Reschedule(t.Context(), k, time.Now().Add(300*time.Millisecond))
		case 2:
			o.Due, o.Payload = time.Now().Add(300*time.Millisecond), []byte("newer")
			err = w.recorder.Schedule(t.Context(), o)
		}
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			t.Fatal(err)
		}
	}
	r := w.finish()
	t.Logf("%d promised, %d of %d optional ones arrived", r.Promised, r.Arrived, r.Optional)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// TestEveryByte: IDs, payloads, headers, content types and the trace context arrive byte
// for byte.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	w.consume("orders.due")

	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	big := []byte(strings.Repeat(string(binary), 1024)) // 256 KiB, the most by default
	ids := []string{
		" ", "a b", "{orders:3}", "}{", "line\nbreak\r\n", "tab\t", "\x00nul\x00", "🚀✉️", "ключ", `"quoted" \ 'id'`,
		"*?[a-z]", "-1", "--id", "+inf",
		strings.Repeat("x", 255), strings.Repeat("é", 127) + "!",
	}
	payloads := [][]byte{binary, {}, []byte("null"), {0xff, 0xfe, 0x00}, big}
	before := time.Now().Truncate(time.Millisecond)
	expected := map[string]want{}
	for i, id := range ids {
		o := order("orders", id, before.Add(time.Second), "")
		o.Payload = payloads[i%len(payloads)]
		o.ContentType = []string{"", "application/json; charset=utf-8", "x/🚀"}[i%3]
		o.Headers = map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"tracestate":  "vendor=a,other=b",
			"empty":       "", "emoji 🚀": "line\nbreak\x00",
		}
		w.schedule(o)
		expected[id] = want{Order: o, storedAfter: before, storedBefore: time.Now().Add(time.Millisecond), attempt: 1}
	}
	if err := w.finish().Err(); err != nil {
		t.Error(err)
	}
	for d := range w.messages.all() {
		expected[d.MessageId].check(t, d)
	}
}

// TestRulesForInput: input that breaks a rule is refused with the field's name and size,
// and nothing is written.
func TestRulesForInput(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	tooMany := map[string]string{}
	for i := range 33 {
		tooMany[fmt.Sprint(i)] = ""
	}
	bad := map[string]func(*producer.Request){
		"topic":      func(r *producer.Request) { r.Topic = "a b" },
		"id":         func(r *producer.Request) { r.ID = strings.Repeat("x", 256) },
		"id: must":   func(r *producer.Request) { r.ID = "\xff" },
		"payload":    func(r *producer.Request) { r.Payload = make([]byte, 256<<10+1) },
		"headers":    func(r *producer.Request) { r.Headers = tooMany },
		"header key": func(r *producer.Request) { r.Headers = map[string]string{"X-Duefleet-Due": "1"} },
		"due":        func(r *producer.Request) { r.When = producer.At(time.Now().AddDate(100, 0, 2)) },
	}
	for field, spoil := range bad {
		r := producer.Request{Topic: "orders", ID: "a", When: producer.In(time.Hour)}
		spoil(&r)
		_, err := w.recorder.Client.Schedule(t.Context(), r)
		if !errors.Is(err, task.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("bad %s: %v", field, err)
		}
	}
	if pending := w.status().Topic("orders").Pending; pending != 0 {
		t.Errorf("%d tasks were written, want none", pending)
	}
}
