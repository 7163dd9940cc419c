package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/task"
)

// shelf holds orders by ID, in place of a database.
type shelf map[string]order

func (s shelf) find(_ context.Context, id string) (order, error) {
	o, ok := s[id]
	switch {
	case id == "broken":
		return o, errBroken
	case !ok:
		return o, errNoOrder
	}
	return o, nil
}

func (s shelf) cancelUnpaid(ctx context.Context, id string) (order, error) {
	o, err := s.find(ctx, id)
	if err == nil && o.State == "unpaid" {
		o.State = "cancelled"
		s[id] = o
	}
	return o, err
}

var errBroken = errors.New("the database is away")

// outbox records the keys of mails.
type outbox struct{ keys []string }

func (o *outbox) send(_ context.Context, key, _, _ string) error {
	o.keys = append(o.keys, key)
	return nil
}

// deliver calls the handler, and returns the next step that it asked for.
func deliver(t *testing.T, h timeouts, d task.Task) (next string, in time.Duration, err error) {
	t.Helper()
	began := time.Now()
	err = h.handle(t.Context(), task.NewDelivery(d, func(due time.Time, payload []byte) error {
		next, in = string(payload), due.Sub(began)
		return nil
	}))
	return next, in, err
}

func TestAStepDoesWhatTheOrderNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id, step    string
		state, next string // after the delivery
		mailed      bool
		is          func(error) bool
	}{
		"unpaid":                  {id: "unpaid", step: stepCancel, state: "cancelled", next: stepRemind},
		"cancelled by a delivery": {id: "cancelled", step: stepCancel, state: "cancelled", next: stepRemind},
		"paid":                    {id: "paid", step: stepCancel, state: "paid"},
		"never committed":         {id: "none", step: stepCancel},
		"no database":             {id: "broken", step: stepCancel, is: isTriedAgain},
		"reminder":                {id: "cancelled", step: stepRemind, state: "cancelled", mailed: true},
		"no database to remind":   {id: "broken", step: stepRemind, is: isTriedAgain},
		"removed":                 {id: "none", step: stepRemind, is: consumer.IsDropped},
		"broken address":          {id: "nowhere", step: stepRemind, state: "cancelled", is: consumer.IsParked},
		"no step":                 {id: "unpaid", step: "dance", state: "unpaid", is: consumer.IsParked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored := shelf{
				"unpaid":    {"unpaid", "ann@example.org", "unpaid"},
				"paid":      {"paid", "ann@example.org", "paid"},
				"cancelled": {"cancelled", "ann@example.org", "cancelled"},
				"nowhere":   {"nowhere", "nowhere", "cancelled"},
			}
			mails := &outbox{}
			h := timeouts{orders: stored, mails: mails, remindAfter: time.Hour}
			next, in, err := deliver(t, h, task.Task{Topic: topic, ID: c.id, Payload: []byte(c.step)})
			if c.is == nil && err != nil || c.is != nil && !c.is(err) {
				t.Errorf("it ends with %v", err)
			}
			if next != c.next || next != "" && in < time.Hour {
				t.Errorf("the next step is %q in %s, want %q in an hour", next, in, c.next)
			}
			if stored[c.id].State != c.state || len(mails.keys) > 0 != c.mailed {
				t.Errorf("the order is %q and mails are %q", stored[c.id].State, mails.keys)
			}
		})
	}
}

func isTriedAgain(err error) bool {
	return errors.Is(err, errBroken) && !consumer.IsParked(err) && !consumer.IsDropped(err)
}

// TestARetryHasTheKeyOfItsFirstAttempt: another step, and another version, has another
// key.
func TestARetryHasTheKeyOfItsFirstAttempt(t *testing.T) {
	t.Parallel()
	mails := &outbox{}
	h := timeouts{orders: shelf{"o-1": {"o-1", "ann@example.org", "cancelled"}}, mails: mails}
	scheduled := time.UnixMilli(1_800_000_000_000)
	d := task.Task{Topic: topic, ID: "o-1", Scheduled: scheduled, Due: scheduled.Add(time.Hour),
		Payload: []byte(stepRemind)}
	retry, later := d, d
	retry.Due, retry.Attempt = d.Due.Add(time.Minute), 2
	later.Scheduled = scheduled.Add(time.Millisecond)
	for _, d := range []task.Task{d, retry, later} {
		if _, _, err := deliver(t, h, d); err != nil {
			t.Fatal(err)
		}
	}
	if mails.keys[0] != mails.keys[1] || mails.keys[0] == mails.keys[2] {
		t.Errorf("the keys are %q", mails.keys)
	}
	first := task.NewDelivery(d, nil)
	first.Payload = []byte(stepCancel)
	if slices.Contains(mails.keys, key(first)) {
		t.Error("two steps have the same key")
	}
}

func TestWhatTheMailServiceAnswersDecides(t *testing.T) {
	t.Parallel()
	for status, is := range map[int]func(error) bool{
		http.StatusAccepted: func(err error) bool { return err == nil },
		http.StatusGone:     consumer.IsDropped,
		http.StatusBadGateway: func(err error) bool {
			return err != nil && !consumer.IsParked(err) && !consumer.IsDropped(err)
		},
	} {
		keys := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys <- r.Header.Get("Idempotency-Key")
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		if err := (mailer{server.URL}).send(t.Context(), "a/key", "ann@example.org", "text"); !is(err) {
			t.Errorf("%d: it ends with %v", status, err)
		}
		if key := <-keys; key != "a/key" {
			t.Errorf("%d: the key is %q", status, key)
		}
	}
}
