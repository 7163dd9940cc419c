package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// message is a message as a scanner publishes it.
func message(change func(*amqp.Publishing)) amqp.Publishing {
	p := amqp.Publishing{
		MessageId: "a", Type: orders, Body: []byte("pay"),
		Headers: amqp.Table{
			task.HeaderTopic: orders, task.HeaderDue: int64(1796119200000), task.HeaderScheduled: int64(1796119100000),
			task.HeaderAttempt: int32(1), task.HeaderRedelivered: false,
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func header(key string, value any) func(*amqp.Publishing) {
	return func(p *amqp.Publishing) {
		if value == nil {
			delete(p.Headers, key)
			return
		}
		p.Headers[key] = value
	}
}

// bad are deliveries that aren't tasks, and the reasons.
func bad() map[string]struct {
	change func(*amqp.Publishing)
	reason string
} {
	type row = struct {
		change func(*amqp.Publishing)
		reason string
	}
	return map[string]row{
		"no headers":           {func(p *amqp.Publishing) { p.Headers = nil }, "foreign"},
		"no due":               {header(task.HeaderDue, nil), "foreign"},
		"no scheduled":         {header(task.HeaderScheduled, nil), "foreign"},
		"no topic, no type":    {func(p *amqp.Publishing) { delete(p.Headers, task.HeaderTopic); p.Type = "" }, "topic"},
		"topic is no text":     {header(task.HeaderTopic, int64(1)), "header"},
		"topic breaks a rule":  {header(task.HeaderTopic, "a b"), "topic"},
		"due is text":          {header(task.HeaderDue, "1796119200000"), "header"},
		"due is 32 bits":       {header(task.HeaderDue, int32(1)), "header"},
		"scheduled is text":    {header(task.HeaderScheduled, "soon"), "header"},
		"attempt is 64 bits":   {header(task.HeaderAttempt, int64(1)), "header"},
		"attempt is 0":         {header(task.HeaderAttempt, int32(0)), "header"},
		"redelivered is text":  {header(task.HeaderRedelivered, "no"), "header"},
		"no message-id":        {func(p *amqp.Publishing) { p.MessageId = "" }, "id"},
		"message-id not UTF-8": {func(p *amqp.Publishing) { p.MessageId = "\xff" }, "id"},
	}
}

func TestWhatIsNoTaskIsDeadLetteredAndTheLoopGoesOn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeOrders()
	var seen log
	var out check.Log
	began := time.Now()
	c := w.consume(Config{
		Log:     slog.New(slog.NewTextHandler(&out, nil)),
		Handler: func(_ context.Context, d task.Delivery) error { seen.add(d); return nil },
	})
	want := map[string]float64{}
	for name, b := range bad() {
		p := message(b.change)
		p.CorrelationId = name
		w.send(p)
		want[b.reason]++
	}
	w.send(message(nil))
	check.Until(t, "the task behind them is done", func() bool { return counted(c, done) == 1 })
	check.Until(t, "all others are dead-lettered", func() bool { return w.waiting("dead") == len(bad()) })
	if len(seen.all()) != 1 {
		t.Errorf("handled %d deliveries", len(seen.all()))
	}
	for reason, n := range want {
		if got := testutil.ToFloat64(c.metrics.rejected.WithLabelValues(reason)); got != n {
			t.Errorf("rejected for %s: counted %v, want %v", reason, got, n)
		}
	}
	minutes := int(time.Since(began) / time.Minute) // whole minutes
	if n := strings.Count(out.String(), "delivery rejected"); n < 1 || n > 1+minutes {
		t.Errorf("logged %d times", n)
	}
}

func TestParseReadsWhatAScannerPublishes(t *testing.T) {
	t.Parallel()
	p := message(func(p *amqp.Publishing) {
		p.ContentType = "text/plain"
		p.Headers["k"] = "v"
		p.Headers["x-death"] = []any{amqp.Table{"count": int64(1)}}
		p.Headers["x-first-death-queue"] = queue
		p.Headers["x-delivery-count"] = int64(2)
		p.Headers["x-duefleet-routing-key"] = "express"
	})
	got, err := Parse(amqp.Delivery{
		Headers: p.Headers, MessageId: p.MessageId, ContentType: p.ContentType, Body: p.Body, Redelivered: true,
		Priority: 7, Expiration: "4294967295", CorrelationId: "c-1", ReplyTo: "answers",
	})
	check.OK(t, err)
	if got.Topic != orders || got.ID != "a" || got.Due.UnixMilli() != 1796119200000 ||
		got.Scheduled.UnixMilli() != 1796119100000 ||
		got.Attempt != 1 || !got.Redelivered || got.ContentType != "text/plain" || string(got.Payload) != "pay" {
		t.Errorf("got %+v", got)
	}
	if want := (task.Options{RoutingKey: "express", Priority: 7, Expiration: task.MaxExpiration, CorrelationID: "c-1",
		ReplyTo: "answers"}); got.Options != want {
		t.Errorf("options %+v, want %+v", got.Options, want)
	}
	if _, err := Parse(amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId, Expiration: "soon"}); err == nil ||
		!strings.Contains(err.Error(), "expiration") {
		t.Errorf("an expiration that is no number: %v", err)
	}
	if len(got.Headers) != 1 || got.Headers["k"] != "v" {
		t.Errorf("headers %v", got.Headers)
	}
}

// A header that a lean message lacks has its default.
func TestParseReadsALeanMessage(t *testing.T) {
	t.Parallel()
	p := message(func(p *amqp.Publishing) {
		p.Headers = amqp.Table{task.HeaderDue: int64(1796119200000), task.HeaderScheduled: int64(1796119100000), "k": "v"}
	})
	lean := amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId, Type: p.Type, Body: p.Body}
	got, err := Parse(lean)
	check.OK(t, err)
	want := task.Task{
		Topic: orders, ID: "a", Due: time.UnixMilli(1796119200000).UTC(), FirstDue: time.UnixMilli(1796119200000).UTC(),
		Scheduled: time.UnixMilli(1796119100000).UTC(), Attempt: 1, Headers: map[string]string{"k": "v"},
		Payload: []byte("pay"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	lean.Headers[task.HeaderAttempt], lean.Headers[task.HeaderRedelivered] = int32(3), true
	if got, err := Parse(lean); err != nil || got.Attempt != 3 || !got.Redelivered {
		t.Errorf("of the third attempt: %+v, %v", got, err)
	}
}

func TestParseRefusesWhatIsNoTask(t *testing.T) {
	t.Parallel()
	for name, b := range bad() {
		p := message(b.change)
		_, err := Parse(amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId, Type: p.Type, Body: p.Body})
		if err == nil || rejection(err) != b.reason {
			t.Errorf("%s: got %v", name, err)
		}
	}
	p := message(nil)
	_, err := Parse(amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId, Type: p.Type,
		Body: make([]byte, task.MaxMaxPayload+1)})
	if err == nil || rejection(err) != "payload" {
		t.Errorf("a body above the largest that may be configured: got %v", err)
	}
}

// TestATaskAboveTheConsumersLimitIsParked, because it is a valid task: its producer has a
// higher limit, and the consumer's can be raised.
func TestATaskAboveTheConsumersLimitIsParked(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	large, err := producer.New(producer.Config{Redis: w.rdb, Prefix: w.settings.RedisPrefix, MaxPayload: 1 << 20})
	check.OK(w.t, err)
	w.producer = large
	var seen log
	var out check.Log
	handler := func(_ context.Context, d task.Delivery) error { seen.add(d); return nil }
	c := w.consume(Config{Handler: handler, Log: slog.New(slog.NewTextHandler(&out, nil))})
	w.schedule("large", strings.Repeat("x", 512_000))
	w.schedule("b", "pay")
	check.Until(t, "it is parked, and the other one done", func() bool {
		return counted(c, park) == 1 &&
			counted(c, done) == 1
	})
	p := w.parked()["large"]
	if want := "payload of 512000 bytes is above the consumer's MaxPayload of 262144"; p.Reason != want ||
		len(p.Payload) != 512_000 {
		t.Errorf("parked %d bytes with %q, want %q", len(p.Payload), p.Reason, want)
	}
	if seen.of("large") != 0 || w.waiting("dead") != 0 || !strings.Contains(out.String(), "task parked") {
		t.Errorf("handled %d times, %d dead-lettered, logged %s", seen.of("large"), w.waiting("dead"), out.String())
	}
	c.stop()
	c = w.consume(Config{Handler: handler, MaxPayload: 1 << 20})
	_, err = admin.Parked{Topic: w.topic}.Replay(t.Context(), "large")
	check.OK(w.t, err)
	check.Until(t, "the replay is done", func() bool { return counted(c, done) == 1 })
	if got := seen.all()[1]; len(got.Payload) != 512_000 {
		t.Errorf("handled %d bytes", len(got.Payload))
	}
}

// TestACancelledTaskAboveTheConsumersLimitIsNotParked: parking doesn't restore a
// cancelled task.
func TestACancelledTaskAboveTheConsumersLimitIsNotParked(t *testing.T) {
	t.Parallel()
	for name, remember := range map[string]time.Duration{"remembering": time.Hour, "not remembering": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			settle := w.lease("large")
			settle()
			delivered := w.rdb.Time(t.Context()).Val().UnixMilli()
			check.Until(t, "the next millisecond", func() bool { return w.rdb.Time(t.Context()).Val().UnixMilli() > delivered })
			if err := w.producer.Cancel(t.Context(), orders, "large"); !errors.Is(err, task.ErrNotFound) {
				t.Fatal(err)
			}
			c := w.consume(Config{MaxPayload: 1, Remember: remember, Handler: func(context.Context,
				task.Delivery) error {
				return nil
			}})
			check.Until(t, "it is acked", func() bool { return counted(c, superseded) == 1 })
			if p := w.parked(); len(p) != 0 {
				t.Errorf("parked %+v", p)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, row := range map[string]struct {
		policy Policy
		delays []time.Duration // after each attempt; then it is parked
	}{
		"fixed":  {Fixed(minute, 3), []time.Duration{minute, minute}},
		"linear": {Linear(minute, 4), []time.Duration{minute, 3 * minute, 5 * minute}},
		"list":   {Delays(minute, time.Hour), []time.Duration{minute, time.Hour}},
		"once":   {Fixed(minute, 1), nil},
		"never":  {NoRetry, nil},
	} {
		for i, want := range row.delays {
			if got, ok := row.policy(task.Task{Attempt: i + 1}, errTest); got != want || !ok {
				t.Errorf("%s: after attempt %d: %v, %v", name, i+1, got, ok)
			}
		}
		if _, ok := row.policy(task.Task{Attempt: len(row.delays) + 1}, errTest); ok {
			t.Errorf("%s: there is an attempt after the last", name)
		}
	}
}

func TestTheExponentialPolicyDoublesWithJitter(t *testing.T) {
	t.Parallel()
	policy := Exponential(time.Second, 10*time.Second, 1000)
	different := map[time.Duration]bool{}
	for attempt, most := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 999: 10 * time.Second,
	} {
		for range 50 {
			got, ok := policy(task.Task{Attempt: attempt}, errTest)
			if !ok || got < most/2 || got > most {
				t.Errorf("after attempt %d: %v, %v", attempt, got, ok)
			}
			different[got] = true
		}
	}
	endless := Exponential(time.Second, math.MaxInt64, 1000)
	if got, ok := endless(task.Task{Attempt: 500}, errTest); !ok || got < math.MaxInt64/2 {
		t.Errorf("after attempt 500 of a policy without a longest delay: %v, %v", got, ok)
	}
	if len(different) < 100 {
		t.Errorf("only %d different delays of 250", len(different))
	}
	if _, ok := policy(task.Task{Attempt: 1000}, errTest); ok {
		t.Error("there is an attempt after the last")
	}
}
