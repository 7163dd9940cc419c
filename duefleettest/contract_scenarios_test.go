package duefleettest_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// scenarios returns the scenarios that TestContract plays.
func scenarios() []scenario {
	return slices.Concat(schedules(), conditions(), failures(), chains(), races())
}

// schedules are scenarios of due times.
func schedules() []scenario {
	return []scenario{{
		name: "in the order of due times",
		run: func(s *story) {
			var requests []producer.Request
			for i, id := range []string{"c", "b", "a"} {
				requests = append(requests, producer.Request{Topic: s.topic, ID: id, Payload: []byte(id),
					When: task.In(time.Duration(3-i) * soon)})
			}
			for _, r := range s.client.ScheduleMany(s.t.Context(), requests) {
				s.note("%v", r.Err)
			}
			s.deliver(3)
		},
		want: []string{"<nil>", "<nil>", "<nil>", `a "a" #1`, `b "b" #1`, `c "c" #1`, "map[done:4]"},
	}, {
		name: "now and in the past",
		run: func(s *story) {
			s.schedule(producer.Request{ID: "now", When: task.Now()})
			s.deliver(1)
			s.schedule(producer.Request{ID: "past", When: task.At(time.Now().Add(-time.Hour))})
			s.deliver(1)
			s.schedule(producer.Request{ID: "negative", When: task.In(-time.Hour)})
			s.deliver(1)
		},
		want: []string{`now "" #1`, `past "" #1`, `negative "" #1`, "map[done:4]"},
	}, {
		name: "the time that is stored",
		run: func(s *story) {
			at := time.Now().Add(2 * time.Hour).Truncate(time.Second)
			s.schedule(producer.Request{ID: "in", When: task.In(time.Hour)})
			s.schedule(producer.Request{ID: "at", When: task.At(at)})
			in, err := s.client.Get(s.t.Context(), s.topic, "in")
			s.note("%v %s %v", err, in.Due.Sub(in.Scheduled), in.NextAttempt.Equal(in.Due))
			stored, err := s.client.Get(s.t.Context(), s.topic, "at")
			s.note("%v %v", err, stored.Due.Equal(at))
		},
		want: []string{"<nil> 1h0m0s true", "<nil> true", "map[done:1]", `waiting at "" #1 `, `waiting in "" #1 `},
	}, {
		name: "cancel",
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(time.Hour)})
			s.cancel()
			s.cancel()
			_, err := s.client.Get(s.t.Context(), s.topic, "a")
			s.note("get: %v", err)
		},
		want: []string{"cancel: <nil>", `cancel: topic cancel, ID "a": no such task`,
			`get: topic cancel, ID "a": no such task`, "map[done:1]"},
	}, {
		name: "reschedule",
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(time.Hour), Payload: []byte("kept")})
			s.reschedule(task.In(soon))
			s.deliver(1)
			s.reschedule(task.In(soon))
		},
		want: []string{`a "kept" #1`, `reschedule: topic reschedule, ID "a": no such task`, "map[done:2]"},
	}, {
		name: "replace",
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(time.Hour), Payload: []byte("first")})
			s.schedule(producer.Request{ID: "a", When: task.In(soon), Payload: []byte("second")})
			s.deliver(1)
			s.schedule(producer.Request{ID: "a", When: task.In(soon), Payload: []byte("third")})
			s.deliver(1)
		},
		want: []string{`a "second" #1`, `a "third" #1`, "map[done:3]"},
	}}
}

// conditions are scenarios of requests that are refused.
func conditions() []scenario {
	return []scenario{{
		name: "if absent",
		cfg:  consumer.Config{Policy: consumer.NoRetry},
		handle: func(_ *story, d task.Delivery) error {
			if string(d.Payload) == "bad" {
				return errAway
			}
			return nil
		},
		run: func(s *story) {
			r := producer.Request{ID: "a", When: task.In(time.Hour), Payload: []byte("bad"), IfAbsent: true}
			s.schedule(r)
			s.schedule(r)
			s.reschedule(task.In(soon))
			s.deliver(1)
			s.schedule(r) // a parked task is stored
			s.cancel()
			r.When, r.Payload = task.In(soon), []byte("good")
			s.schedule(r)
			s.deliver(1)
			s.schedule(r) // a delivered one isn't
			s.deliver(1)
		},
		want: []string{`schedule: topic if-absent, ID "a": a task of this ID exists already`, `a "bad" #1 the last attempt`,
			`schedule: topic if-absent, ID "a": a task of this ID exists already`, "cancel: <nil>", `a "good" #1 the last attempt`,
			`a "good" #1 the last attempt`, "map[done:3 parked:1]"},
	}, {
		name: "if present",
		run: func(s *story) {
			r := producer.Request{ID: "a", When: task.In(soon), IfPresent: true}
			s.schedule(r)
			r.IfPresent = false
			r.When = task.In(time.Hour)
			s.schedule(r)
			r.IfPresent, r.When, r.Payload = true, task.In(soon), []byte("second")
			s.schedule(r)
			s.deliver(1)
		},
		want: []string{`schedule: topic if-present, ID "a": no such task`, `a "second" #1`, "map[done:2]"},
	}, {
		name: "invalid input",
		run: func(s *story) {
			s.schedule(producer.Request{ID: "", When: task.Now()})
			s.schedule(producer.Request{ID: "a"})
			s.schedule(producer.Request{ID: "a", When: task.In(37_000 * 24 * time.Hour)})
			s.schedule(producer.Request{ID: "a", When: task.Now(), Payload: make([]byte, task.DefaultMaxPayload+1)})
			_, err := s.client.Schedule(s.t.Context(), producer.Request{Topic: "elsewhere", ID: "a", When: task.Now()})
			s.note("%v", errors.Is(err, task.ErrUnknownTopic))
			s.note("%v", s.client.CancelMany(s.t.Context(), s.topic, []string{"", "b"}))
		},
		want: []string{"schedule: id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes",
			"schedule: due: must be given; Now() is due now; got no time",
			"schedule: due: must be at most 100 years ahead; got 888000h0m0s",
			"schedule: payload: must be at most 262144 bytes (max_payload); got 262145 bytes",
			"true",
			`[id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes topic invalid-input, ID "b": no such task]`,
			"map[done:1]"},
	}, {
		name: "headers and properties",
		handle: func(s *story, d task.Delivery) error {
			s.note("%v %s %s %q", d.Headers, d.ContentType, d.Options.CorrelationID, d.Options.ReplyTo)
			if d.Attempt == 1 {
				return errAway
			}
			return nil
		},
		cfg: consumer.Config{Policy: consumer.Fixed(soon, 3)},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon), Headers: map[string]string{"tenant": "17"},
				ContentType: "text/plain", Options: task.Options{CorrelationID: "c-1", ReplyTo: "answers"}})
			s.deliver(2)
		},
		want: []string{`a "" #1`, `map[tenant:17] text/plain c-1 "answers"`, `a "" #2 again`,
			`map[tenant:17] text/plain c-1 "answers"`, "map[done:2 retried:1]"},
	}}
}

// failures are scenarios of handlers that fail.
func failures() []scenario {
	always := func(*story, task.Delivery) error { return errAway }
	return []scenario{{
		name: "retry until done",
		cfg:  consumer.Config{Policy: consumer.Delays(soon, 2*soon, soon)},
		handle: func(_ *story, d task.Delivery) error {
			if d.Attempt < 3 {
				return errAway
			}
			return nil
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon), Payload: []byte("p")})
			s.deliver(3)
		},
		want: []string{`a "p" #1`, `a "p" #2 again`, `a "p" #3 again`, "map[done:2 retried:2]"},
	}, {
		name:   "wait for the next attempt",
		cfg:    consumer.Config{Policy: consumer.Fixed(time.Hour, 3)},
		handle: always,
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(1)
			stored, err := s.client.Get(s.t.Context(), s.topic, "a")
			s.note("%v %v", err, stored.NextAttempt.Sub(stored.FirstDue) >= time.Hour)
		},
		want: []string{`a "" #1`, "<nil> true", "map[done:1 retried:1]",
			`waiting a "" #2 the payment service is away`},
	}, {
		name: "park after the last attempt",
		cfg:  consumer.Config{Policy: consumer.Fixed(soon, 2)},
		handle: func(_ *story, d task.Delivery) error {
			return fmt.Errorf("attempt %d: %w", d.Attempt, errAway)
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(2)
		},
		want: []string{`a "" #1`, `a "" #2 again the last attempt`, "map[done:1 parked:1 retried:1]",
			`parked a "" #3 attempt 2: the payment service is away`},
	}, {
		name:   "reschedule a parked task",
		cfg:    consumer.Config{Policy: consumer.Fixed(soon, 2)},
		handle: always,
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(2)
			s.reschedule(task.In(soon))
			s.deliver(2)
			s.cancel()
		},
		want: []string{`a "" #1`, `a "" #2 again the last attempt`, `a "" #1`, `a "" #2 again the last attempt`,
			"cancel: <nil>", "map[done:1 parked:2 retried:2]"},
	}, {
		name: "what a handler decides",
		cfg:  consumer.Config{Policy: consumer.Fixed(soon, 2)},
		handle: func(_ *story, d task.Delivery) error {
			switch d.ID {
			case "dropped":
				return consumer.Drop(errAway)
			case "parked":
				return consumer.Park(errAway)
			}
			panic("no customer")
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "dropped", When: task.Now()})
			s.deliver(1)
			s.schedule(producer.Request{ID: "parked", When: task.Now()})
			s.deliver(1)
			s.schedule(producer.Request{ID: "panics", When: task.Now()})
			s.deliver(2)
		},
		want: []string{`dropped "" #1`, `parked "" #1`, `panics "" #1`, `panics "" #2 again the last attempt`,
			"map[done:1 dropped:1 parked:2 retried:1]", `parked panics "" #3 panic: no customer`,
			`parked parked "" #2 the payment service is away`},
	}, {
		name: "later",
		cfg:  consumer.Config{Policy: consumer.NoRetry},
		handle: func(_ *story, d task.Delivery) error {
			if d.Due.Equal(d.FirstDue) {
				return consumer.Later(errAway, soon)
			}
			return nil
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(2)
		},
		want: []string{`a "" #1 the last attempt`, `a "" #1 again the last attempt`, "map[done:2 postponed:1]"},
	}}
}

// chains are scenarios of next steps.
func chains() []scenario {
	next := func(_ *story, d task.Delivery) error {
		switch string(d.Payload) {
		case "first":
			return d.NextWhen(task.In(2*soon), []byte("second"))
		case "second":
			return d.Next(d.Due, []byte("third")) // at least MinStep later
		case "third":
			return d.NextWhen(task.In(time.Hour), []byte("fourth"))
		}
		return nil
	}
	begin := producer.Request{ID: "a", When: task.In(soon), Payload: []byte("first"),
		Headers: map[string]string{"tenant": "17"}}
	steps := []string{`a "first" #1`, `a "second" #1`, `a "third" #1`}
	with := func(more ...string) []string { return append(append([]string(nil), steps...), more...) }
	return []scenario{{
		name:   "chain",
		handle: next,
		run: func(s *story) {
			s.schedule(begin)
			s.deliver(3)
			stored, err := s.client.Get(s.t.Context(), s.topic, "a")
			s.note("%v %s %v", err, stored.Headers["tenant"], stored.Due.Equal(stored.FirstDue))
		},
		want: with("<nil> 17 true", "map[done:4]", `waiting a "fourth" #1 `),
	}, {
		name:   "cancel a step that waits",
		handle: next,
		run: func(s *story) {
			s.schedule(begin)
			s.deliver(3)
			s.cancel()
		},
		want: with("cancel: <nil>", "map[done:4]"),
	}, {
		name:   "move a step that waits",
		handle: next,
		run: func(s *story) {
			s.schedule(begin)
			s.deliver(3)
			s.reschedule(task.In(soon))
			s.deliver(1)
		},
		want: with(`a "fourth" #1`, "map[done:5]"),
	}, {
		name: "a step that fails",
		cfg:  consumer.Config{Policy: consumer.Fixed(soon, 2)},
		handle: func(_ *story, d task.Delivery) error {
			if err := d.NextWhen(task.In(soon), []byte("second")); err != nil || d.Attempt == 1 {
				return errAway // the step isn't stored
			}
			if string(d.Payload) == "second" {
				return consumer.Park(errAway)
			}
			return nil
		},
		run: func(s *story) {
			s.schedule(begin)
			s.deliver(4)
		},
		want: []string{`a "first" #1`, `a "first" #2 again the last attempt`, `a "second" #1`,
			`a "second" #2 again the last attempt`, "map[done:2 parked:1 retried:2]",
			`parked a "second" #3 the payment service is away`},
	}}
}

// races are scenarios of producers that act while a handler has the task.
func races() []scenario {
	return []scenario{{
		name: "cancel in the handler",
		handle: func(s *story, d task.Delivery) error {
			// A real task may still be stored, until the scanner settles it.
			err := s.client.Cancel(s.t.Context(), s.topic, d.ID)
			s.note("cancelled: %v", err == nil || errors.Is(err, task.ErrNotFound))
			return d.NextWhen(task.In(soon), []byte("second"))
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(1)
		},
		want: []string{`a "" #1`, "cancelled: true", "map[done:2]"},
	}, {
		name: "replace in the handler",
		cfg:  consumer.Config{Policy: consumer.Fixed(soon, 5)},
		handle: func(s *story, d task.Delivery) error {
			if string(d.Payload) == "second" {
				return nil
			}
			s.schedule(producer.Request{ID: "a", When: task.In(2 * soon), Payload: []byte("second")})
			return errAway
		},
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(2)
		},
		want: []string{`a "" #1`, `a "second" #1`, "map[done:2 superseded:1]"},
	}, {
		name:   "cancel before a retry",
		cfg:    consumer.Config{Policy: consumer.Fixed(time.Hour, 5)},
		handle: func(*story, task.Delivery) error { return errAway },
		run: func(s *story) {
			s.schedule(producer.Request{ID: "a", When: task.In(soon)})
			s.deliver(1)
			s.cancel()
		},
		want: []string{`a "" #1`, "cancel: <nil>", "map[done:1 retried:1]"},
	}}
}
