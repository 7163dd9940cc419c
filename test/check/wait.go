package check

import (
	"context"
	"testing"
	"time"
)

const (
	// Hang is how long a wait lasts without progress before the test fails. It counts from the last
	// sign of progress, so a slow machine fails no test.
	Hang = 60 * time.Second
	// between is the pause between two checks of a condition.
	between = 5 * time.Millisecond
)

// Until waits until done returns true, and fails the test after Hang. If things arrive one
// by one, use Progress.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	Progress(t, what, func() int { return 0 }, done)
}

// Progress waits until done returns true. It fails the test if count, for example a
// number of arrivals, hasn't changed for Hang.
func Progress(t testing.TB, what string, count func() int, done func() bool) {
	t.Helper()
	if err := progress(t.Context(), count, done); err != nil {
		t.Fatalf("waited for %s: no progress for %s; the last count was %d", what, Hang, count())
	}
}

// Count waits until count returns at least n. It fails the test if the count hasn't
// changed for Hang.
func Count(t testing.TB, what string, n int, count func() int) {
	t.Helper()
	Progress(t, what, count, func() bool { return count() >= n })
}

// Receive returns the next value from a channel. It fails the test if none comes within
// Hang, or if the channel is closed.
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

// Closed waits until a channel is closed, and discards values that come before. It fails
// the test if neither happens for Hang.
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

// Context returns a context that ends after Hang. It is for a single call that must not
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
