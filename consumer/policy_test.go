package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestAPolicysInvalidDelayParks: such a delay doesn't mean now. The reason names it.
func TestAPolicysInvalidDelayParks(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	logs, out := logger()
	for _, row := range []struct {
		delay  time.Duration
		reason string
	}{
		{-time.Second, "delay must not be negative; got -1s"},
		{30, "delay must be 0 or at least 1ms; got 30ns"},
	} {
		id := row.delay.String()
		c := w.consume(Config{
			Policy: func(t task.Task, _ error) (time.Duration, bool) {
				if t.Attempt == 1 {
					return 0, true
				}
				return row.delay, t.Attempt < 4
			},
			Log: logs, Handler: func(context.Context, task.Delivery) error { return errTest },
		})
		w.schedule(id, "")
		check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
		c.stop()
		p := w.parked()[id]
		want := "Config.Policy: " + row.reason + "; the attempt failed: the bank is closed"
		if p.Reason != want || p.Attempt != 3 {
			t.Errorf("parked after attempt %d with %q, want %q", p.Attempt-1, p.Reason, want)
		}
		if got := lines(out, "level=ERROR", `msg="task parked"`, row.reason); len(got) != 1 {
			t.Errorf("%d lines with %q in %s", len(got), row.reason, out)
		}
	}
}

// TestTheDefaultPolicySurvivesANight: a task that always fails is parked after 24 to 48
// hours. The first five delays are below half a minute together, and none is above an hour.
func TestTheDefaultPolicySurvivesANight(t *testing.T) {
	t.Parallel()
	policy := Config{}.withDefaults().Policy
	for range 100 {
		var delays []time.Duration
		for d, ok := policy(task.Task{Attempt: 1}, errTest); ok; {
			delays = append(delays, d)
			d, ok = policy(task.Task{Attempt: len(delays) + 1}, errTest)
		}
		var total, early time.Duration
		for i, d := range delays {
			if total += d; i < 5 {
				early += d
			}
		}
		if len(delays) != 59 || total < 24*time.Hour || total > 48*time.Hour+10*time.Minute {
			t.Errorf("parked after %d attempts and %s", len(delays)+1, total)
		}
		if early > 31*time.Second || slices.Max(delays) > time.Hour {
			t.Errorf("the first five delays take %s, the longest %s", early, slices.Max(delays))
		}
	}
}

// TestAPolicySeesTheErrorAndTheTask, and LastAttempt asks it.
func TestAPolicySeesTheErrorAndTheTask(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	last := make(chan string, 10)
	c := w.consume(Config{
		Policy: func(t task.Task, err error) (time.Duration, bool) {
			most := 2
			if t.ID == "long" && errors.Is(err, errTest) {
				most = 3
			}
			return 0, t.Attempt < most
		},
		Handler: func(_ context.Context, d task.Delivery) error {
			last <- fmt.Sprint(d.ID, d.Attempt, d.LastAttempt(errTest), d.LastAttempt(nil), d.LastAttempt(Park(nil)),
				d.LastAttempt(Later(nil, time.Hour)))
			return errTest
		},
	})
	for id, want := range map[string][]string{
		"short": {"short1 false false true false", "short2 true true true false"},
		"long":  {"long1 false false true false", "long2 false true true false", "long3 true true true false"},
	} {
		before := counted(c, park)
		w.schedule(id, "")
		for _, line := range want {
			if got := check.Receive(t, "the handler is called", last); got != line {
				t.Errorf("got %s, want %s", got, line)
			}
		}
		check.Until(t, "it is parked", func() bool { return counted(c, park) == before+1 })
	}
}

// TestAHandlersAttemptsDoNotPark: of the attempts only those that RabbitMQ returned count
// for the topic's max_attempts.
func TestAHandlersAttemptsDoNotPark(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		const exchange, key = "amq.direct", "order.due"
		w.settings.Topics = map[string]fleet.Topic{orders: {
			"shards": 1, "exchange": exchange, "routing_key": key, "max_attempts": 2, "headers": w.headers,
			"backoff": map[string]any{"min": "1ms", "max": "1ms"},
		}}
		check.OK(w.t, fleet.WriteConfig(w.config, w.settings.Document()))
		check.OK(w.t, w.channel.QueueBind(queue, key, exchange, false, nil))
		w.scan()
		w.consume(Config{Policy: Fixed(0, 10), Handler: func(_ context.Context, d task.Delivery) error {
			if d.Attempt == 3 {
				check.OK(w.t, w.channel.QueueUnbind(queue, key, exchange, nil))
			}
			return errTest
		}})
		w.schedule("a", "fails")
		check.Until(t, "the task is parked", func() bool { return len(w.parked()) == 1 })
		// three of the handler, two of RabbitMQ
		if r := w.parked()["a"]; r.Attempt != 6 || !strings.Contains(r.Reason, "NO_ROUTE") {
			t.Errorf("parked before attempt %d: %s", r.Attempt, r.Reason)
		}
	})
}

// TestLaterWaitsWithoutCountingTheAttempt: the payload, the first due time and the attempt
// stay, in a step of a chain and after a failed attempt, too.
func TestLaterWaitsWithoutCountingTheAttempt(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		var seen log
		logs, out := logger()
		c := w.consume(Config{Policy: Fixed(0, 2), Log: logs, Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			switch len(seen.all()) {
			case 1, 2, 5:
				if err := d.NextWhen(task.In(time.Millisecond), []byte("not stored")); err != nil {
					return err
				}
				return fmt.Errorf("wrapped: %w", Later(errTest, 200*time.Millisecond))
			case 3:
				return errTest
			case 4:
				return d.NextWhen(task.In(time.Millisecond), []byte("step"))
			}
			return nil
		}})
		w.schedule("a", "first")
		check.Until(t, "the chain ends", func() bool { return counted(c, done) == 2 })
		all := seen.all()
		if len(all) != 6 || counted(c, postponed) != 3 || counted(c, retried) != 1 {
			t.Fatalf("%d deliveries, %v postponed", len(all), counted(c, postponed))
		}
		for i, want := range []string{"first/1", "first/1", "first/1", "first/2", "step/1", "step/1"} {
			d, begin := all[i], 0
			if i >= 4 {
				begin = 4
			}
			if got := fmt.Sprintf("%s/%d", d.Payload, d.Attempt); got != want || !d.FirstDue.Equal(all[begin].FirstDue) {
				t.Errorf("delivery %d: %s, first due %s; want %s, %s", i+1, got, d.FirstDue, want, all[begin].FirstDue)
			}
			if i > 0 && i != 3 && i != 4 && d.Due.Sub(all[i-1].Due) < 200*time.Millisecond {
				t.Errorf("delivery %d is due %s after the one before", i+1, d.Due.Sub(all[i-1].Due))
			}
		}
		got := lines(out, "level=INFO", `msg="handler asked for later, task is delivered again"`, "id=a", errTest.Error())
		if len(got) != 1 {
			t.Errorf("logged %s", out)
		}
	})
}

// TestLaterDoesNotBringBackWhatTheProducerChanged, as a retry doesn't.
func TestLaterDoesNotBringBackWhatTheProducerChanged(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	began, goOn := make(chan struct{}), make(chan struct{})
	c := w.consume(Config{Handler: func(context.Context, task.Delivery) error {
		close(began)
		hold(t, goOn)
		return Later(errTest, time.Millisecond)
	}})
	w.schedule("a", "first")
	check.Closed(t, "the handler has it", began)
	w.request(producer.Request{ID: "a", Payload: []byte("second"), When: producer.In(time.Hour)})
	close(goOn)
	check.Until(t, "it isn't stored", func() bool { return counted(c, superseded) == 1 })
	if s, there := w.stored("a"); !there || string(s.Payload) != "second" {
		t.Errorf("stored: %v %+v", there, s)
	}
}

// TestLaterOfAnInvalidDelayIsAFailure: the policy decides, and the error names the delay.
func TestLaterOfAnInvalidDelayIsAFailure(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-time.Second, 0, 30, task.MaxAhead + 1} {
		err := Later(errTest, d)
		want := fmt.Sprintf("consumer.Later: delay must be 1ms to 876600h0m0s; got %s: the bank is closed", d)
		if _, is := IsLater(err); is || err.Error() != want || !errors.Is(err, errTest) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if d, is := IsLater(fmt.Errorf("wrapped: %w", Later(nil, time.Hour))); !is || d != time.Hour {
		t.Errorf("an hour: got %v, %s", is, d)
	}
	if _, is := IsLater(Park(errTest)); is {
		t.Error("Park is Later")
	}
}
