package duefleettest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/task"
)

// noted is a test that keeps the message of Fatalf.
type noted struct {
	testing.TB
	fatal string
}

// Helper is called in another goroutine than the test's.
func (n *noted) Helper() {}

// Fatalf keeps the message and ends the goroutine.
func (n *noted) Fatalf(format string, args ...any) {
	n.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fatal returns the message with which use ends its test.
func fatal(t *testing.T, use func(t testing.TB)) string {
	t.Helper()
	n := &noted{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		use(n)
	}()
	<-ended
	return n.fatal
}

func TestMisuseEndsTheTest(t *testing.T) {
	t.Parallel()
	done := func(context.Context, task.Delivery) error { return nil }
	good := duefleettest.Config{Topics: []string{"orders"}, Handler: done}
	for want, use := range map[string]func(t testing.TB){
		"Advance(-1m0s): the clock moves forward only": func(t testing.TB) {
			duefleettest.New(t, good).Advance(-time.Minute)
		},
		"Config.Topics must name a topic": func(t testing.TB) {
			duefleettest.New(t, duefleettest.Config{Handler: done})
		},
		"topic: must be 1 to 64 of": func(t testing.TB) {
			duefleettest.New(t, duefleettest.Config{Topics: []string{"or ders"}, Handler: done})
		},
		"Config.Handler must be given": func(t testing.TB) {
			duefleettest.New(t, duefleettest.Config{Topics: []string{"orders"}})
		},
		"Fixed(-1s, 3): delay must not be negative": func(t testing.TB) {
			duefleettest.New(t, duefleettest.Config{Topics: []string{"orders"}, Handler: done,
				Policy: consumer.Fixed(-time.Second, 3)})
		},
		"topic mails isn't in Config.Topics": func(t testing.TB) {
			duefleettest.New(t, good).Pending("mails")
		},
		"Advance was called while it calls a handler": func(t testing.TB) {
			var fleet *duefleettest.Fleet
			cfg := good
			cfg.Handler = func(context.Context, task.Delivery) error {
				fleet.Advance(0)
				return nil
			}
			fleet = duefleettest.New(t, cfg)
			schedule(t, fleet, "4711", task.Now())
			fleet.Advance(0)
		},
		"Config.MaxDeliveries must not be negative; got -1": func(t testing.TB) {
			cfg := good
			cfg.MaxDeliveries = -1
			duefleettest.New(t, cfg)
		},
		`Advance(9600h0m0s) made 50 deliveries in 960h0m5s, the last of topic orders, ID "4711": does`: func(t testing.TB) {
			cfg := good
			cfg.MaxDeliveries = 50
			cfg.Handler = func(_ context.Context, d task.Delivery) error {
				return d.NextWhen(task.At(d.Scheduled.AddDate(0, 1, 0)), nil) // d.Due is meant
			}
			fleet := duefleettest.New(t, cfg)
			schedule(t, fleet, "4711", task.In(40*24*time.Hour))
			fleet.Advance(400 * 24 * time.Hour)
		},
		`topic orders, ID "4711": each of 101 deliveries scheduled the next for now, without end`: func(t testing.TB) {
			var fleet *duefleettest.Fleet
			cfg := good
			cfg.Handler = func(context.Context, task.Delivery) error {
				schedule(t, fleet, "4711", task.Now())
				return nil
			}
			fleet = duefleettest.New(t, cfg)
			schedule(t, fleet, "4711", task.Now())
			fleet.Advance(time.Hour)
		},
	} {
		t.Run(want, func(t *testing.T) {
			if got := fatal(t, use); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
