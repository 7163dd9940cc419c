package consumer

import (
	"math/rand/v2"
	"time"
)

// Policy says how long after a failed attempt, counted from 1, the next one is
// due; or not ok: that was the last, and the task is parked. Any function may be
// one. x-duefleet-attempt counts the broker's returns too, as far as there were any.
type Policy func(attempt int) (delay time.Duration, ok bool)

// Fixed retries after the same delay, until there were most attempts.
func Fixed(delay time.Duration, most int) Policy {
	return func(attempt int) (time.Duration, bool) { return delay, attempt < most }
}

// Linear retries after (2n+1) units, n being the retries made before: 1, 3, 5, 7
// and so on, until there were most attempts. With a unit of a minute it is how
// payment callbacks are commonly repeated.
func Linear(unit time.Duration, most int) Policy {
	return func(attempt int) (time.Duration, bool) {
		return time.Duration(2*attempt-1) * unit, attempt < most
	}
}

// Exponential retries after a delay that begins at first and doubles up to
// longest, until there were most attempts. Half of it is drawn by lot, so that
// what failed together doesn't come back together (Brooker, "Exponential Backoff
// And Jitter", 2015: equal jitter).
func Exponential(first, longest time.Duration, most int) Policy {
	return func(attempt int) (time.Duration, bool) {
		delay := max(first, 1)
		for range attempt - 1 {
			if delay >= longest {
				break
			}
			delay *= 2
		}
		half := min(delay, max(longest, 1)) / 2
		return half + rand.N(half+1), attempt < most //nolint:gosec // jitter needs no secrecy
	}
}

// Delays retries after each of the delays in turn; there is one attempt more than
// there are delays.
func Delays(delays ...time.Duration) Policy {
	return func(attempt int) (time.Duration, bool) {
		if attempt < 1 || attempt > len(delays) {
			return 0, false
		}
		return delays[attempt-1], true
	}
}
