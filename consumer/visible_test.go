package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// logger returns a logger of the default level, and what it wrote.
func logger() (*slog.Logger, *check.Log) {
	var out check.Log
	return slog.New(slog.NewTextHandler(&out, nil)), &out
}

// lines returns the lines of a log that have all of these parts.
func lines(log *check.Log, parts ...string) (found []string) {
next:
	for line := range strings.Lines(log.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// TestFailingHandlersAreLogged: a log of the default level has a line for retries and for
// dropped tasks, with the topic, the ID and the reason. It doesn't grow with the attempts.
func TestFailingHandlersAreLogged(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	logs, out := logger()
	began := time.Now()
	c := w.consume(Config{Policy: Fixed(0, 100), Log: logs, Handler: func(_ context.Context, d task.Delivery) error {
		switch {
		case d.ID == "drop":
			return Drop(errTest)
		case d.Attempt <= 7:
			return errTest
		}
		return nil
	}})
	w.schedule("fail", "secret")
	w.schedule("drop", "secret")
	check.Until(t, "both are over", func() bool { return counted(c, drop) == 1 && counted(c, done) == 1 })
	minutes := int(time.Since(began) / time.Minute) // whole minutes
	for _, parts := range [][]string{
		{"level=WARN", `msg="handler failed, task is tried again"`, "topic=orders", "id=fail", "attempt=1"},
		{"level=WARN", `msg="task dropped by its handler"`, "topic=orders", "id=drop", "attempt=1"},
	} {
		got := lines(out, append(parts, `reason="the bank is closed"`)...)
		if len(got) != 1 {
			t.Errorf("%d lines with %q in %s", len(got), parts, out)
		}
		if n := len(lines(out, parts[1])); n > 1+minutes {
			t.Errorf("%d lines with %q in %d minutes", n, parts[1], minutes)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("the log has a payload: %s", out)
	}
}

// TestWhatDoesNotFollowIsLogged: a retry and a next step that aren't stored because of a
// newer version, and a delivery that is acked without the handler.
func TestWhatDoesNotFollowIsLogged(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	logs, out := logger()
	c := w.consume(Config{Policy: Fixed(0, 5), Log: logs, Handler: func(ctx context.Context, d task.Delivery) error {
		if string(d.Payload) == "new" {
			return nil
		}
		later := producer.Request{Topic: orders, ID: d.ID, When: producer.In(time.Hour), Payload: []byte("new"),
			IfAbsent: true}
		check.Until(t, "the delivery is settled", func() bool {
			_, err := w.producer.Schedule(ctx, later)
			return err == nil
		})
		if d.ID == "retry" {
			return errTest
		}
		return d.NextWhen(task.In(time.Second), []byte("step"))
	}})
	w.schedule("retry", "old")
	w.schedule("step", "old")
	check.Until(t, "both are over", func() bool { return counted(c, superseded) == 1 && counted(c, done) == 1 })
	for id, parts := range map[string][]string{
		"retry": {"level=WARN", "handler failed, no retry: the task was cancelled or replaced", errTest.Error()},
		"step":  {"level=INFO", "next step not stored: the task was cancelled or replaced"},
	} {
		if got := lines(out, append(parts, "topic=orders", "id="+id)...); len(got) != 1 {
			t.Errorf("%d lines with %q in %s", len(got), parts, out)
		}
		if s, there := w.stored(id); !there || string(s.Payload) != "new" {
			t.Errorf("%s: stored %+v", id, s)
		}
	}
}

// TestOnParkedIsCalledForEachParkedTask, after it is stored, with the handler's error. A
// delivery that comes again after a crash parks and calls again. A panic changes nothing.
func TestOnParkedIsCalledForEachParkedTask(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	logs, out := logger()
	type call struct {
		task   task.Task
		err    error
		reason string // as stored
	}
	calls := make(chan call, 10)
	var seen log
	c := w.consume(Config{
		Policy: Fixed(0, 2), Log: logs, MaxPayload: 10,
		OnParked: func(_ context.Context, t task.Task, err error) {
			calls <- call{t, err, w.parked()[t.ID].Reason}
			panic("no idea")
		},
		Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			if d.ID == "at once" {
				return Park(errTest)
			}
			return errTest
		},
	})
	want := func(id string, attempt int) {
		t.Helper()
		got := check.Receive(t, "OnParked is called", calls)
		if got.task.ID != id || got.task.Topic != orders || got.task.Attempt != attempt || got.err.Error() != got.reason {
			t.Errorf("called with %+v", got)
		}
		if id != "large" && !errors.Is(got.err, errTest) {
			t.Errorf("%s: called with the error %v", id, got.err)
		}
	}
	w.schedule("last attempt", "")
	want("last attempt", 2)
	w.schedule("at once", "")
	want("at once", 1)
	w.schedule("large", "more than 10")
	want("large", 1)
	check.Until(t, "all are parked", func() bool { return counted(c, park) == 3 })
	w.publish(seen.all()[2].Task) // as if its ack was lost
	want("at once", 1)
	check.Until(t, "it is parked again", func() bool { return counted(c, park) == 4 })
	if n := len(w.parked()); n != 3 {
		t.Errorf("%d tasks are parked", n)
	}
	if got := lines(out, "level=ERROR", `msg="OnParked panicked"`, "no idea"); len(got) == 0 {
		t.Errorf("no line about the panic in %s", out)
	}
	c.stop()
	if n := w.waiting(queue); n != 0 {
		t.Errorf("%d messages were left unanswered", n)
	}
}

// TestIfAbsentSeesAParkedTaskAndNoDelivery: while a handler has the task, a task with
// IfAbsent is stored, and stays when the handler's retry is dropped. A parked task exists,
// and stays parked.
func TestIfAbsentSeesAParkedTaskAndNoDelivery(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	tomorrow := producer.Request{Topic: orders, ID: "a", When: producer.In(24 * time.Hour), IfAbsent: true}
	g := newGate(t)
	c := w.consume(Config{Policy: Fixed(0, 5), Handler: func(ctx context.Context, d task.Delivery) error {
		if d.ID == "parked" {
			return Park(errTest)
		}
		return g.handler(ctx, d)
	}})
	w.schedule("a", "first")
	check.Closed(t, "the handler has it", g.began)
	w.forgotten()
	_, err := w.producer.Schedule(t.Context(), tomorrow)
	check.OK(w.t, err)
	close(g.fails)
	check.Until(t, "its retry is dropped", func() bool { return counted(c, superseded) == 1 })
	if s, there := w.stored("a"); !there || s.Attempt != 1 || s.Due.Before(time.Now().Add(time.Hour)) {
		t.Errorf("stored: %v %+v", there, s)
	}
	w.schedule("parked", "")
	check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
	tomorrow.ID = "parked"
	if _, err := w.producer.Schedule(t.Context(), tomorrow); !errors.Is(err, task.ErrExists) {
		t.Errorf("IfAbsent of a parked task: %v", err)
	}
	if s, _ := w.stored("parked"); s.State != task.Parked {
		t.Errorf("it is %s", s.State)
	}
}
