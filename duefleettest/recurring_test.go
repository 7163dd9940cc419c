package duefleettest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// recur schedules a recurring task of the topic orders.
func recur(t *testing.T, fleet *duefleettest.Fleet, r *task.Recurrence) {
	t.Helper()
	_, err := fleet.Client().Schedule(t.Context(), producer.Request{Topic: "orders", ID: "a", Recurrence: r,
		Payload: []byte("p"), Headers: map[string]string{"h": "v"}})
	check.OK(t, err)
}

func TestARecurringTaskRunsAtTheTimesOfItsRule(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: func(_ context.Context, d task.Delivery) error {
		check.Equal(t, "series", d.Series, "a")
		check.Equal(t, "payload", string(d.Payload)+d.Headers["h"], "pv")
		check.Equal(t, "headers", len(d.Headers), 1)
		check.Equal(t, "first due", d.FirstDue, d.Due)
		return nil
	}})
	recur(t, fleet, producer.Every(90*time.Minute))
	want(t, fleet.Advance(4*time.Hour), "10:30:00 a@2026-11-25T10:30:00.000Z #1 done",
		"12:00:00 a@2026-11-25T12:00:00.000Z #1 done")
	recur(t, fleet, producer.Cron("0 15 * * *", "Europe/Berlin")) // another rule replaces it
	want(t, fleet.Advance(26*time.Hour), "14:00:00 a@2026-11-25T14:00:00.000Z #1 done",
		"14:00:00 a@2026-11-26T14:00:00.000Z #1 done")
	check.OK(t, fleet.Client().Cancel(t.Context(), "orders", "a"))
	want(t, fleet.Advance(48*time.Hour))
}

func TestARecurringTaskEnds(t *testing.T) {
	t.Parallel()
	done := func(context.Context, task.Delivery) error { return nil }
	for name, rule := range map[string]task.Recurrence{
		"after three runs": {Every: time.Hour, Runs: 3},
		"with the third":   {Every: time.Hour, Until: at("12:00:00")},
	} {
		fleet := newFleet(t, duefleettest.Config{Handler: done})
		recur(t, fleet, &rule)
		if n := len(fleet.Advance(24 * time.Hour)); n != 3 {
			t.Errorf("%s: %d runs", name, n)
		}
		if _, err := fleet.Client().Get(t.Context(), "orders", "a"); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFailingRunIsATaskOfItsOwn: it is retried while the next runs go on, and a
// cancel of the recurring task ends its retries too.
func TestAFailingRunIsATaskOfItsOwn(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: func(_ context.Context, d task.Delivery) error {
		check.Equal(t, "series", d.Series, "a")
		planned, _ := d.Planned()
		check.Equal(t, "planned", planned, d.FirstDue)
		if d.FirstDue.Equal(at("10:00:00")) {
			return errAway
		}
		return nil
	}})
	recur(t, fleet, producer.Every(time.Hour))
	made := fleet.Advance(time.Hour)
	want(t, made, "10:00:00 a@2026-11-25T10:00:00.000Z #1 retried")
	task, err := fleet.Client().Get(t.Context(), "orders", made[0].ID)
	check.OK(t, err)
	check.Equal(t, "the retry", task.Series+" "+string(task.Payload), "a p")
	made = fleet.Advance(90 * time.Minute)
	check.Equal(t, "deliveries", len(made) > 3, true)
	check.OK(t, fleet.Client().Cancel(t.Context(), "orders", "a"))
	for _, d := range fleet.Advance(24 * time.Hour) {
		if d.Outcome != duefleettest.Superseded {
			t.Errorf("after the cancel: %+v", d)
		}
	}
}

// TestAMoveMovesOneRun: the others stay at the times of the rule, and none comes twice.
func TestAMoveMovesOneRun(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: func(context.Context, task.Delivery) error { return nil }})
	recur(t, fleet, producer.Cron("0 * * * *", "UTC"))
	move := func(clock string) {
		_, err := fleet.Client().Reschedule(t.Context(), "orders", "a", task.At(at(clock)))
		check.OK(t, err)
	}
	move("09:10:00")
	move("09:20:00")
	stored, err := fleet.Client().Get(t.Context(), "orders", "a")
	check.OK(t, err)
	check.Equal(t, "planned", stored.Recurrence.Planned, at("10:00:00"))
	want(t, fleet.Advance(time.Hour), "09:20:00 a@2026-11-25T10:00:00.000Z #1 done")
	want(t, fleet.Advance(time.Hour), "11:00:00 a@2026-11-25T11:00:00.000Z #1 done")
	move("13:30:00")
	want(t, fleet.Advance(4*time.Hour), "13:30:00 a@2026-11-25T12:00:00.000Z #1 done",
		"14:00:00 a@2026-11-25T14:00:00.000Z #1 done", "15:00:00 a@2026-11-25T15:00:00.000Z #1 done")
}

func TestBadRecurrences(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Handler: failing})
	for field, r := range map[string]producer.Request{
		"every": {ID: "a", Recurrence: producer.Every(time.Millisecond)},
		"cron":  {ID: "a", Recurrence: producer.Cron("61 * * * *", "UTC")},
		"zone":  {ID: "a", Recurrence: producer.Cron("0 * * * *", "Mars")},
		"runs":  {ID: "a", Recurrence: &task.Recurrence{Every: time.Hour, Runs: -1}},
		"until": {ID: "a", Recurrence: &task.Recurrence{Every: time.Hour, Until: at("09:59:59")}},
		"id":    {ID: string(make([]byte, 231)), Recurrence: producer.Every(time.Hour)},
		"due":   {ID: "a"},
	} {
		r.Topic = "orders"
		_, one := fleet.Client().Schedule(t.Context(), r)
		for _, err := range []error{one, fleet.Client().ScheduleMany(t.Context(), []producer.Request{r})[0].Err,
			r.Check(1000, fleet.Now())} {
			var rule *task.RuleError
			if !errors.As(err, &rule) || rule.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}
