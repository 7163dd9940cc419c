package duefleettest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/task"
)

// TestAHandlerThatNeverReturnsEndsTheTest: not even the end of its context stops it.
func TestAHandlerThatNeverReturnsEndsTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		got := fatal(t, func(t testing.TB) {
			fleet := duefleettest.New(t, duefleettest.Config{
				Topics: []string{"orders"}, Consumer: consumer.Config{Timeout: 10 * time.Second},
				Handler: func(context.Context, task.Delivery) error {
					<-release
					return nil
				},
			})
			schedule(t, fleet, "4711", task.In(30*time.Minute))
			fleet.Advance(time.Hour)
		})
		const want = `topic orders, ID "4711": the handler hasn't returned 15s after its context ended; ` +
			`Config.Consumer.Timeout is 10s`
		if !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		close(release)
		synctest.Wait()
	})
}

// TestAHandlerEndsTheTest: a handler may call t.Fatal, as the test may.
func TestAHandlerEndsTheTest(t *testing.T) {
	t.Parallel()
	got := fatal(t, func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{Topics: []string{"orders"},
			Handler: func(_ context.Context, d task.Delivery) error {
				t.Fatalf("no order %s", d.ID)
				return nil
			}})
		schedule(t, fleet, "4711", task.Now())
		fleet.Advance(0)
		t.Fatalf("Advance returned")
	})
	if got != "no order 4711" {
		t.Errorf("got %q", got)
	}
}

func TestAPanicIsTheErrorOfItsDelivery(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{Policy: consumer.Fixed(time.Minute, 2),
		Handler: func(context.Context, task.Delivery) error { panic("no customer") }})
	schedule(t, fleet, "4711", task.Now())
	got := fleet.Advance(time.Hour)
	want(t, got, "09:00:00 4711 #1 retried", "09:01:00 4711 #2 parked")
	for _, d := range got {
		if d.Err == nil || d.Err.Error() != "panic: no customer" {
			t.Errorf("attempt %d: got error %v", d.Attempt, d.Err)
		}
	}
	if stored, _ := fleet.Task("orders", "4711"); stored.Reason != "panic: no customer" {
		t.Errorf("got reason %q", stored.Reason)
	}
}

// TestAsManyDeliveriesAsTheLimit: an Advance may make them, and so may the next.
func TestAsManyDeliveriesAsTheLimit(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, duefleettest.Config{MaxDeliveries: 2,
		Handler: func(_ context.Context, d task.Delivery) error {
			return d.NextWhen(task.At(d.Due.Add(30*time.Minute)), nil)
		}})
	schedule(t, fleet, "4711", task.In(30*time.Minute))
	want(t, fleet.Advance(time.Hour), "09:30:00 4711 #1 done", "10:00:00 4711 #1 done")
	want(t, fleet.Advance(time.Hour), "10:30:00 4711 #1 done", "11:00:00 4711 #1 done")
}

// TestNoProgramIsNeeded: neither Redis nor RabbitMQ is on this machine's path.
func TestNoProgramIsNeeded(t *testing.T) {
	t.Setenv("PATH", "")
	fleet := newFleet(t, duefleettest.Config{Handler: func(context.Context, task.Delivery) error { return nil }})
	schedule(t, fleet, "4711", task.In(30*time.Minute))
	want(t, fleet.Advance(time.Hour), "09:30:00 4711 #1 done")
}
