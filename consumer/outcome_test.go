package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

var errTest = errors.New("the bank is closed")

func counted(c *running, became outcome) float64 {
	return testutil.ToFloat64(c.metrics.deliveries.WithLabelValues(orders, string(became)))
}

func TestWhatWasDoneIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		var seen log
		c := w.consume(Config{Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			return nil
		}})
		w.request(producer.Request{ID: "a", Payload: []byte("pay"), ContentType: "text/plain",
			Headers: map[string]string{"k": "v"}})
		check.Until(t, "it is done", func() bool { return counted(c, done) == 1 })
		got := seen.all()[0]
		if got.Topic != orders || got.ID != "a" || string(got.Payload) != "pay" || got.Attempt != 1 ||
			got.ContentType != "text/plain" || got.Headers["k"] != "v" {
			t.Errorf("handled %+v", got.Task)
		}
		w.publish(got.Task)
		check.Until(t, "the repeat is acked", func() bool { return counted(c, repeat) == 1 })
		if n := seen.of("a"); n != 1 {
			t.Errorf("handled %d times", n)
		}
		// The same ID, due later, is another task.
		w.schedule("a", "again")
		check.Until(t, "the next is done", func() bool { return counted(c, done) == 2 })
		c.stop()
		if n := w.waiting(queue); n != 0 {
			t.Errorf("%d messages were left unanswered", n)
		}
	})
}

// TestARetryKeepsTheOptions: the message of each attempt has the options of its producer.
func TestARetryKeepsTheOptions(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		want := task.Options{RoutingKey: queue, Priority: 3, Expiration: time.Hour, CorrelationID: "c-1", ReplyTo: "answers"}
		var seen log
		c := w.consume(Config{Policy: Fixed(0, 3), Handler: func(_ context.Context, d task.Delivery) error {
			if seen.add(d); seen.of("a") == 1 {
				return errTest
			}
			return nil
		}})
		w.request(producer.Request{ID: "a", Options: want})
		check.Until(t, "the second attempt", func() bool { return counted(c, done) == 1 })
		for i, d := range seen.all() {
			if d.Options != want || d.Attempt != i+1 {
				t.Errorf("delivery %d: attempt %d, options %+v, want %+v", i, d.Attempt, d.Options, want)
			}
		}
		c.stop()
	})
}

func TestWithoutRememberingARedeliveryIsHandledAgain(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var seen log
	c := w.consume(Config{Remember: -1, Handler: func(_ context.Context, d task.Delivery) error {
		seen.add(d)
		return nil
	}})
	w.schedule("a", "")
	check.Until(t, "it is done", func() bool { return counted(c, done) == 1 })
	w.publish(seen.all()[0].Task)
	check.Until(t, "it is done again", func() bool { return counted(c, done) == 2 })
	if n := w.rdb.Exists(t.Context(), w.past("a")).Val(); n != 0 {
		t.Error("it is remembered")
	}
}

func TestWhatIsRememberedExpires(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var seen log
	c := w.consume(Config{Remember: time.Hour, Handler: func(_ context.Context,
		d task.Delivery) error {
		seen.add(d)
		return nil
	}})
	w.schedule("a", "")
	check.Until(t, "it is done", func() bool { return counted(c, done) == 1 })
	// Both times are by Redis's clock: when it was noted as done, and when the note
	// expires.
	noted, err := w.rdb.HGet(t.Context(), w.past("a"), fmt.Sprint(seen.all()[0].Due.UnixMilli())).Int64()
	check.OK(w.t, err)
	expires, err := w.rdb.PExpireTime(t.Context(), w.past("a")).Result()
	check.OK(w.t, err)
	if window := expires - time.Duration(noted)*time.Millisecond; window <= 59*time.Minute ||
		window > time.Hour+time.Second {
		t.Errorf("it expires %v after it was done", window)
	}
}

func TestWhatFailsIsTriedAgainAndParkedAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		var seen log
		var healed atomic.Bool
		c := w.consume(Config{
			Policy: Fixed(100*time.Millisecond, 3),
			Handler: func(_ context.Context, d task.Delivery) error {
				seen.add(d)
				if healed.Load() {
					return nil
				}
				return errTest
			},
		})
		w.request(producer.Request{ID: "a", Payload: []byte("pay"), ContentType: "text/plain",
			Headers: map[string]string{"k": "v"}})
		check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
		p := w.parked()["a"]
		if p.Reason != errTest.Error() || p.Attempt != 4 || string(p.Payload) != "pay" {
			t.Errorf("parked %+v", p)
		}
		all := seen.all()
		if len(all) != 3 {
			t.Fatalf("handled %d times", len(all))
		}
		for i, d := range all {
			if d.Attempt != i+1 || string(d.Payload) != "pay" || d.ContentType != "text/plain" || d.Headers["k"] != "v" ||
				!d.Scheduled.Equal(all[0].Scheduled) {
				t.Errorf("attempt %d: %+v", i+1, d.Task)
			}
			if i > 0 && d.Due.Sub(all[i-1].Due) < 100*time.Millisecond {
				t.Errorf("attempt %d is due %v after the one before", i+1, d.Due.Sub(all[i-1].Due))
			}
		}
		healed.Store(true)
		n, err := admin.Parked{Topic: w.topic}.Replay(t.Context(), "a")
		check.OK(w.t, err)
		if n != 1 {
			t.Fatalf("replayed %d", n)
		}
		check.Until(t, "the replay is done", func() bool { return counted(c, done) == 1 })
		if last := seen.all()[3]; last.Attempt != 1 {
			t.Errorf("the replay is attempt %d", last.Attempt)
		}
		if counted(c, retried) != 2 || counted(c, park) != 1 {
			t.Errorf("counted %v retries and %v parked", counted(c, retried), counted(c, park))
		}
	})
}

func TestAHandlerParksAndDrops(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	// A retry would stay stored.
	c := w.consume(Config{Policy: Fixed(never, 5), Handler: func(_ context.Context, d task.Delivery) error {
		if d.ID == "park" {
			return Park(errTest)
		}
		return errors.Join(errTest, Drop(errTest)) // wrapped, too
	}})
	w.schedule("park", "")
	w.schedule("drop", "")
	check.Until(t, "both are over", func() bool { return counted(c, park) == 1 && counted(c, drop) == 1 })
	if p := w.parked(); len(p) != 1 || p["park"].Reason != errTest.Error() {
		t.Errorf("parked %+v", p)
	}
	check.Until(t, "the dropped task isn't stored any more", func() bool {
		_, there := w.stored("drop")
		return !there
	})
	// A parked task is replayed and handled although its due is the same.
	_, err := admin.Parked{Topic: w.topic}.Replay(t.Context(), "")
	check.OK(w.t, err)
	check.Until(t, "it is parked again", func() bool { return counted(c, park) == 2 })
}

func TestAPanicIsAnErrorWithItsStackInTheLog(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var out check.Log
	c := w.consume(Config{
		Policy: Fixed(0, 1), Log: slog.New(slog.NewTextHandler(&out, nil)),
		Handler: func(context.Context, task.Delivery) error { panicHere(); return nil },
	})
	w.schedule("a", "secret")
	check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
	if got := w.parked()["a"].Reason; got != "panic: no way" {
		t.Errorf("parked with %q", got)
	}
	if text := out.String(); !strings.Contains(text, "panicHere") || strings.Contains(text, "secret") {
		t.Errorf("logged %s", text)
	}
	if n := testutil.ToFloat64(c.metrics.panics.WithLabelValues(orders)); n != 1 {
		t.Errorf("counted %v panics", n)
	}
}

// TestWhatFailsForManyTasksIsOneLine: the log doesn't grow with the number of parked
// tasks.
func TestWhatFailsForManyTasksIsOneLine(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var out check.Log
	began := time.Now()
	c := w.consume(Config{
		Policy: Fixed(0, 1), Log: slog.New(slog.NewTextHandler(&out, nil)),
		Handler: func(context.Context, task.Delivery) error { panicHere(); return nil },
	})
	const n = 50
	for i := range n {
		w.schedule(fmt.Sprint("a", i), "")
	}
	check.Until(t, "all are parked", func() bool { return counted(c, park) == n })
	minutes := int(time.Since(began) / time.Minute) // whole minutes
	for _, line := range []string{`msg="task parked"`, `msg="handler panicked"`} {
		if got := strings.Count(out.String(), line); got < 1 || got > 1+minutes {
			t.Errorf("%d times %s in the log of %d tasks", got, line, n)
		}
	}
}

func panicHere() { panic("no way") }

func TestASlowHandlerSeesItsContextEnd(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	c := w.consume(Config{
		Policy: Fixed(0, 1), Timeout: 50 * time.Millisecond,
		Handler: func(ctx context.Context, _ task.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
	w.schedule("a", "")
	check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
	if got := w.parked()["a"].Reason; got != context.DeadlineExceeded.Error() {
		t.Errorf("parked with %q", got)
	}
}

func TestAChainGoesOnStepByStep(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var seen log
	c := w.consume(Config{
		Policy: Fixed(50*time.Millisecond, 5),
		Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			step := string(d.Payload)
			if step == "c" {
				return nil
			}
			if err := d.Next(time.Now().Add(50*time.Millisecond), []byte{d.Payload[0] + 1}); err != nil {
				return err
			}
			if step == "b" && d.Attempt == 1 {
				return errTest // a failed step is retried, and its next step isn't stored
			}
			return nil
		},
	})
	w.request(producer.Request{ID: "a", Payload: []byte("a"), Headers: map[string]string{"k": "v"}})
	check.Until(t, "the chain ends", func() bool { return counted(c, done) == 3 })
	var steps []string
	for _, d := range seen.all() {
		steps = append(steps, string(d.Payload))
		if d.Headers["k"] != "v" {
			t.Errorf("step %s has headers %v", d.Payload, d.Headers)
		}
	}
	if got := strings.Join(steps, ""); got != "abbc" {
		t.Errorf("steps %s", got)
	}
	if last := seen.all()[3]; last.Attempt != 1 {
		t.Errorf("the last step is attempt %d", last.Attempt)
	}
}

func TestANextStepKeepsTheRules(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	refused := make(chan error, 2)
	w.consume(Config{MaxPayload: 10, Handler: func(_ context.Context, d task.Delivery) error {
		refused <- d.Next(time.Now(), make([]byte, 11))
		refused <- d.Next(time.Now().AddDate(101, 0, 0), nil)
		return nil
	}})
	w.schedule("a", "")
	for _, field := range []string{"payload", "due"} {
		var rule *task.RuleError
		if err := check.Receive(t, "the handler asked for a step", refused); !errors.As(err, &rule) || rule.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestATraceGoesOnThroughRetries(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	spans := make(chan trace.SpanContext, 2)
	w.consume(Config{Policy: Fixed(0, 2), Handler: func(ctx context.Context, _ task.Delivery) error {
		spans <- trace.SpanContextFromContext(ctx)
		return errTest
	}})
	w.request(producer.Request{ID: "a", Headers: map[string]string{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "k=v",
	}})
	for range 2 {
		s := check.Receive(t, "the handler is called", spans)
		if s.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || s.TraceState().Get("k") != "v" || !s.IsRemote() {
			t.Errorf("got span %+v", s)
		}
	}
}

func TestConsumersShareARegisterer(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	registry := prometheus.NewRegistry()
	handler := func(context.Context, task.Delivery) error { return nil }
	for range 2 {
		c, err := New(w.configure(Config{Registerer: registry, Handler: handler}))
		check.OK(w.t, err)
		c.metrics.rejected.WithLabelValues("foreign").Inc()
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP duefleet_consumer_rejected_total Deliveries that aren't tasks, sent to the queue's dead-letter exchange.
# TYPE duefleet_consumer_rejected_total counter
duefleet_consumer_rejected_total{reason="foreign"} 2
`), "duefleet_consumer_rejected_total"); err != nil {
		t.Error(err)
	}
}
