// Package wait is how a test waits for something: for as long as it takes.
//
// How fast a machine is decides no test. The one limit here is against hanging,
// and it counts from the last sign of progress, never in total.
package wait

import (
	"context"
	"testing"
	"time"
)

const (
	// Hang is how long a test goes on without any progress before it is taken
	// for one that hangs.
	Hang = 60 * time.Second
	// between is the time from one look at a condition to the next.
	between = 5 * time.Millisecond
)

// For returns when done does, and fails the test when it didn't for as long as
// Hang. For what comes bit by bit, use Progress.
func For(t testing.TB, what string, done func() bool) {
	t.Helper()
	Progress(t, what, func() int { return 0 }, done)
}

// Progress returns when done does, and fails the test when count has stayed the
// same for as long as Hang: a count of what arrived, say.
func Progress(t testing.TB, what string, count func() int, done func() bool) {
	t.Helper()
	if err := progress(t.Context(), count, done); err != nil {
		t.Fatalf("waited for %s: nothing more happened for %s; the last count was %d", what, Hang, count())
	}
}

// Count returns when count is at least n, and fails the test when it has stayed
// below it, and the same, for as long as Hang.
func Count(t testing.TB, what string, n int, count func() int) {
	t.Helper()
	Progress(t, what, count, func() bool { return count() >= n })
}

// Receive returns what comes out of a channel next, and fails the test when
// nothing does for as long as Hang, or the channel is closed.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Hang)
	defer timer.Stop()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatalf("waited for %s: the channel was closed", what)
		}
		return v
	case <-timer.C:
		t.Fatalf("waited for %s: nothing came for %s", what, Hang)
	}
	panic("unreachable")
}

// Closed returns when a channel is closed, whatever comes out of it before.
func Closed[T any](t testing.TB, what string, ch <-chan T) {
	t.Helper()
	timer := time.NewTimer(Hang)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
			timer.Reset(Hang)
		case <-timer.C:
			t.Fatalf("waited for %s: not closed after %s", what, Hang)
		}
	}
}

// Context returns one that ends after Hang, for a single call that must not
// block a test for ever.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Hang)
	t.Cleanup(cancel)
	return ctx
}

func progress(ctx context.Context, count func() int, done func() bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(Hang, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	tick := time.NewTicker(between)
	defer tick.Stop()
	for last := count(); !done(); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if n := count(); n != last {
			last = n
			limit.Reset(Hang)
		}
	}
	return nil
}
