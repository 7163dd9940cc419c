package duefleettest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

var errAway = errors.New("the payment service is away")

// at returns a time of the day on which the fleets of the tests begin, at nine.
func at(clock string) time.Time {
	when, err := time.Parse("2006-01-02 15:04:05.999", "2026-11-25 "+clock)
	if err != nil {
		panic(err)
	}
	return when
}

// newFleet returns a fleet for the topic orders with its clock at nine.
func newFleet(t *testing.T, cfg duefleettest.Config) *duefleettest.Fleet {
	t.Helper()
	cfg.Topics, cfg.Start = []string{"orders"}, at("09:00:00")
	return duefleettest.New(t, cfg)
}

// schedule schedules a task of the topic orders.
func schedule(t testing.TB, fleet *duefleettest.Fleet, id string, when task.When) {
	t.Helper()
	_, err := fleet.Client().Schedule(t.Context(), producer.Request{Topic: "orders", ID: id, When: when})
	check.OK(t, err)
}

// want compares deliveries with lines such as "09:30:00 4711 #1 done".
func want(t *testing.T, got []duefleettest.Delivery, lines ...string) {
	t.Helper()
	var have []string
	for _, d := range got {
		have = append(have, fmt.Sprintf("%s %s #%d %s", d.Due.Format("15:04:05.999"), d.ID, d.Attempt, d.Outcome))
	}
	if !reflect.DeepEqual(have, lines) {
		t.Errorf("got deliveries\n%q\nwant\n%q", have, lines)
	}
}

// failing is a handler that fails.
func failing(context.Context, task.Delivery) error { return errAway }

func TestRetriesComeAtTheTimesOfThePolicy(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: failing, Policy: consumer.Delays(time.Minute, 10*time.Minute)})
	schedule(t, fleet, "4711", task.In(30*time.Minute))
	want(t, fleet.Advance(30*time.Minute-time.Millisecond))
	want(t, fleet.Advance(time.Millisecond), "09:30:00 4711 #1 retried")
	stored, ok := fleet.Task("orders", "4711")
	waits := stored.State == task.Waiting && stored.NextAttempt.Equal(at("09:31:00"))
	if !ok || !waits || stored.Reason != errAway.Error() {
		t.Errorf("got %+v, want a task that waits until 09:31", stored)
	}
	want(t, fleet.Advance(time.Hour), "09:31:00 4711 #2 retried", "09:41:00 4711 #3 parked")
	if !fleet.Now().Equal(at("10:30:00")) {
		t.Errorf("the clock shows %s, want 10:30", fleet.Now())
	}
	pending := fleet.Pending("orders")
	if len(pending) != 1 || pending[0].State != task.Parked || pending[0].Reason != errAway.Error() {
		t.Errorf("got %+v, want one parked task", pending)
	}
}

func TestAParkedTaskComesAgainAfterReschedule(t *testing.T) {
	t.Parallel()
	err := errAway
	fleet := newFleet(t, duefleettest.Config{Policy: consumer.NoRetry,
		Handler: func(context.Context, task.Delivery) error { return err }})
	schedule(t, fleet, "4711", task.In(time.Minute))
	want(t, fleet.Advance(time.Minute), "09:01:00 4711 #1 parked")
	err = nil
	_, failed := fleet.Client().Reschedule(t.Context(), "orders", "4711", task.In(time.Minute))
	check.OK(t, failed)
	want(t, fleet.Advance(time.Hour), "09:02:00 4711 #1 done")
	if pending := fleet.Pending("orders"); len(pending) > 0 {
		t.Errorf("got %+v, want none", pending)
	}
}

func TestAChain(t *testing.T) {
	t.Parallel()
	var steps []string
	fleet := newFleet(t, duefleettest.Config{Handler: func(_ context.Context, d task.Delivery) error {
		steps = append(steps, string(d.Payload))
		switch string(d.Payload) {
		case "":
			return d.NextWhen(task.In(10*time.Minute), []byte("remind"))
		case "remind":
			return d.NextWhen(task.At(d.Scheduled.Add(time.Hour)), []byte("cancel"))
		}
		return nil
	}})
	schedule(t, fleet, "4711", task.In(30*time.Minute))
	want(t, fleet.Advance(2*time.Hour), "09:30:00 4711 #1 done", "09:40:00 4711 #1 done", "10:00:00 4711 #1 done")
	if !reflect.DeepEqual(steps, []string{"", "remind", "cancel"}) {
		t.Errorf("got steps %q", steps)
	}
}

func TestWhatAProducerDoesBeforeTheDueTime(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: func(context.Context, task.Delivery) error { return nil }})
	client := fleet.Client()
	for _, id := range []string{"cancelled", "moved", "twice", "kept"} {
		schedule(t, fleet, id, task.In(30*time.Minute))
	}
	want(t, fleet.Advance(10*time.Minute))
	check.OK(t, client.Cancel(t.Context(), "orders", "cancelled"))
	due, err := client.Reschedule(t.Context(), "orders", "moved", task.In(5*time.Minute))
	check.OK(t, err)
	if !due.Equal(at("09:15:00")) {
		t.Errorf("Reschedule returned %s, want 09:15", due)
	}
	_, err = client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: "twice", When: task.Now(), IfAbsent: true})
	if !errors.Is(err, task.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	schedule(t, fleet, "kept", task.At(at("09:29:59.999")))
	want(t, fleet.Advance(time.Hour), "09:15:00 moved #1 done", "09:29:59.999 kept #1 done", "09:30:00 twice #1 done")
}

// TestAHandlerSchedulesAtItsOwnTime: the clock stands at the due time while a handler runs,
// and what it schedules comes in the same Advance.
func TestAHandlerSchedulesAtItsOwnTime(t *testing.T) {
	t.Parallel()
	var fleet *duefleettest.Fleet
	fleet = newFleet(t, duefleettest.Config{Handler: func(ctx context.Context, d task.Delivery) error {
		if !fleet.Now().Equal(d.Due) {
			t.Errorf("the clock shows %s at the delivery due %s", fleet.Now(), d.Due)
		}
		if d.ID != "first" {
			return nil
		}
		for id, when := range map[string]task.When{"now": task.Now(), "soon": task.In(10 * time.Minute)} {
			if _, err := fleet.Client().Schedule(ctx, producer.Request{Topic: "orders", ID: id, When: when}); err != nil {
				return err
			}
		}
		return nil
	}})
	schedule(t, fleet, "last", task.In(50*time.Minute))
	schedule(t, fleet, "first", task.In(30*time.Minute))
	want(t, fleet.Advance(time.Hour), "09:30:00 first #1 done", "09:30:00 now #1 done", "09:40:00 soon #1 done",
		"09:50:00 last #1 done")
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	var fleet *duefleettest.Fleet
	parked := 0
	answers := map[string]func() error{
		"dropped":   func() error { return consumer.Drop(errAway) },
		"parked":    func() error { return consumer.Park(errAway) },
		"panicked":  func() error { panic("no customer") },
		"postponed": func() error { return consumer.Later(errAway, time.Hour) },
		"replaced": func() error {
			schedule(t, fleet, "replaced", task.In(2*time.Hour))
			return errAway
		},
		"cancelled": func() error {
			err := fleet.Client().Cancel(t.Context(), "orders", "cancelled")
			if !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Cancel of a task in its handler: %v, want ErrNotFound", err)
			}
			return errAway
		},
	}
	fleet = newFleet(t, duefleettest.Config{
		Policy:   consumer.Fixed(time.Hour, 5),
		Handler:  func(_ context.Context, d task.Delivery) error { return answers[d.ID]() },
		Consumer: consumer.Config{OnParked: func(context.Context, task.Task, error) { parked++ }},
	})
	for id := range answers {
		schedule(t, fleet, id, task.In(time.Minute))
	}
	got := fleet.Advance(time.Minute)
	want(t, got, "09:01:00 cancelled #1 superseded", "09:01:00 dropped #1 dropped", "09:01:00 panicked #1 retried",
		"09:01:00 parked #1 parked", "09:01:00 postponed #1 postponed", "09:01:00 replaced #1 superseded")
	for _, d := range got {
		if fails := d.ID != "panicked"; errors.Is(d.Err, errAway) != fails {
			t.Errorf("%s: got error %v", d.ID, d.Err)
		}
	}
	if parked != 1 {
		t.Errorf("OnParked was called %d times", parked)
	}
	if panicked, _ := fleet.Task("orders", "panicked"); panicked.Reason != "panic: no customer" {
		t.Errorf("got reason %q", panicked.Reason)
	}
	answers["postponed"] = func() error { return nil }
	answers["panicked"] = answers["postponed"]
	want(t, fleet.Advance(time.Hour), "10:01:00 panicked #2 done", "10:01:00 postponed #1 done")
}

func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	done := func(context.Context, task.Delivery) error { return nil }
	fleet := duefleettest.New(t, duefleettest.Config{Topics: []string{"orders", "bills"}, Handler: done})
	for i, topic := range []string{"orders", "bills", "orders"} {
		_, err := fleet.Client().Schedule(t.Context(), producer.Request{Topic: topic, ID: fmt.Sprint(i),
			When: task.In(time.Duration(i+1) * time.Minute), Headers: map[string]string{"tenant": "17"}})
		check.OK(t, err)
	}
	var order []string
	for _, d := range fleet.Advance(time.Hour) {
		order = append(order, d.Topic)
	}
	if !reflect.DeepEqual(order, []string{"orders", "bills", "orders"}) {
		t.Errorf("got the order %q", order)
	}
	_, err := fleet.Client().Schedule(t.Context(), producer.Request{Topic: "mails", ID: "1", When: task.Now()})
	if !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("got %v, want ErrUnknownTopic", err)
	}
}

// TestAnIDAgainInTheSameMillisecond: a consumer tells deliveries apart by their due, and this
// clock stands still.
func TestAnIDAgainInTheSameMillisecond(t *testing.T) {
	t.Parallel()
	again := 2
	var fleet *duefleettest.Fleet
	fleet = newFleet(t, duefleettest.Config{Handler: func(context.Context, task.Delivery) error {
		if again--; again >= 0 {
			schedule(t, fleet, "4711", task.Now())
		}
		return nil
	}})
	schedule(t, fleet, "4711", task.Now())
	want(t, fleet.Advance(time.Second), "09:00:00 4711 #1 done", "09:00:00.001 4711 #1 done", "09:00:00.002 4711 #1 done")
	schedule(t, fleet, "4711", task.Now())
	want(t, fleet.Advance(0), "09:00:01 4711 #1 done")
	schedule(t, fleet, "4711", task.Now())
	want(t, fleet.Advance(0), "09:00:01.001 4711 #1 done")
}

// TestTheWholeClient: lists, batches and large payloads work as with a Redis.
func TestTheWholeClient(t *testing.T) {
	t.Parallel()
	handler := func(_ context.Context, d task.Delivery) error {
		if len(d.Payload) != 200_000 {
			t.Errorf("%s: got a payload of %d bytes", d.ID, len(d.Payload))
		}
		return errAway
	}
	fleet := newFleet(t, duefleettest.Config{Policy: consumer.NoRetry, Handler: handler})
	ctx, client := t.Context(), fleet.Client()
	requests := make([]producer.Request, 5)
	for i := range requests {
		requests[i] = producer.Request{Topic: "orders", ID: fmt.Sprint(i), Payload: make([]byte, 200_000),
			When: task.In(time.Duration(i) * time.Hour), Headers: map[string]string{"tenant": "17"}}
	}
	requests[0].When = task.Now()
	for _, r := range client.ScheduleMany(ctx, requests) {
		check.OK(t, r.Err)
	}
	want(t, fleet.Advance(time.Hour), "09:00:00 0 #1 parked", "10:00:00 1 #1 parked")
	listed := func(f producer.Filter) (ids []string) {
		for s, err := range client.List(ctx, "orders", f) {
			check.OK(t, err)
			ids = append(ids, s.ID)
		}
		return ids
	}
	for name, row := range map[string]struct {
		filter producer.Filter
		want   []string
	}{
		"parked":  {producer.Filter{State: task.Parked}, []string{"0", "1"}},
		"waiting": {producer.Filter{State: task.Waiting, DueTo: at("12:00:00")}, []string{"2", "3"}},
		"due":     {producer.Filter{DueFrom: at("12:00:00"), WithoutPayload: true}, []string{"3", "4"}},
	} {
		if got := listed(row.filter); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
	moved := client.RescheduleMany(ctx, "orders", []producer.Move{{ID: "0", When: task.In(time.Minute)}})
	check.OK(t, moved[0].Err)
	check.OK(t, errors.Join(client.CancelMany(ctx, "orders", []string{"1", "2", "3"})...))
	if got := client.GetMany(ctx, "orders", []string{"0"}); len(got[0].Task.Payload) != 200_000 {
		t.Errorf("GetMany returned %+v", got[0].Err)
	}
	want(t, fleet.Advance(5*time.Hour), "10:01:00 0 #1 parked", "13:00:00 4 #1 parked")
}

// TestManyYears: nothing but due tasks costs time.
func TestManyYears(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: func(context.Context, task.Delivery) error { return nil }})
	schedule(t, fleet, "4711", task.In(50*365*24*time.Hour))
	if got := fleet.Advance(51 * 365 * 24 * time.Hour); len(got) != 1 || got[0].Outcome != duefleettest.Done {
		t.Errorf("got %+v, want one delivery", got)
	}
}

// TestInABubble: in a bubble of testing/synctest the handler's own clock is the fleet's.
func TestInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cut := 0
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"orders"}, Synctest: true, Policy: consumer.Fixed(time.Minute, 3),
			Consumer: consumer.Config{Timeout: 10 * time.Second},
			Handler: func(ctx context.Context, d task.Delivery) error {
				if d.Attempt == 1 {
					<-ctx.Done() // a service that hangs, until Timeout
					cut++
					return ctx.Err()
				}
				if d.FirstDue.Equal(d.Due) {
					return nil
				}
				return d.Next(time.Now().Add(time.Hour), nil)
			},
		})
		began := time.Now()
		if !fleet.Now().Equal(began) {
			t.Errorf("the clock shows %s in a bubble at %s", fleet.Now(), began)
		}
		schedule(t, fleet, "4711", task.In(30*time.Minute))
		var due []time.Duration
		for _, d := range fleet.Advance(90 * time.Minute) {
			due = append(due, d.Due.Sub(began))
		}
		if wanted := []time.Duration{30 * time.Minute, 31*time.Minute + 10*time.Second}; !reflect.DeepEqual(due, wanted) {
			t.Errorf("got deliveries after %s, want %s", due, wanted)
		}
		if cut != 1 || time.Since(began) != 90*time.Minute {
			t.Errorf("got %d handlers cut short in %s, want 1 in 90m", cut, time.Since(began))
		}
		if next, _ := fleet.Task("orders", "4711"); !next.Due.Equal(began.Add(91*time.Minute + 10*time.Second)) {
			t.Errorf("the next step is due %s", next.Due)
		}
	})
}
