package consumer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/task"
)

// Policy returns the delay between a failed attempt and the next. If ok is false there is no
// next attempt, and the task is parked. A delay is 0, or at least 1ms. Any function can be a
// policy. t is the task and err the error of its handler. t.Attempt is the number of the
// failed attempt, from 1. It also counts messages that the broker returned or refused.
//
// A policy must be safe for concurrent use. It may be called several times for an attempt:
// task.Delivery.LastAttempt calls it too. New calls it once, with a task that has only
// Attempt 1. If a policy panics later or returns an invalid delay, the task is parked. The
// reason names what is wrong.
type Policy func(t task.Task, err error) (delay time.Duration, ok bool)

// defaultPolicy tries a task 60 times. Its first delay is 1s or less, and no delay is longer
// than an hour. So a task that always fails is parked after 24 to 48 hours.
func defaultPolicy() Policy { return Exponential(time.Second, time.Hour, 60) }

// NoRetry is the Policy that parks a task after its first failed attempt.
func NoRetry(task.Task, error) (time.Duration, bool) { return 0, false }

// Fixed retries after the same delay, up to most attempts in total. New refuses a delay
// that is negative or less than a millisecond, except 0, and most below 1.
func Fixed(delay time.Duration, most int) Policy {
	if wrong := firstOf(unfit("delay", delay), tooFew(most)); wrong != "" {
		return mistaken(fmt.Sprintf("Fixed(%s, %d): %s", delay, most, wrong))
	}
	return func(t task.Task, _ error) (time.Duration, bool) { return delay, t.Attempt < most }
}

// Linear retries up to most attempts in total. The delay before retry n is 2n-1 units: 1,
// 3, 5, 7 and so on. Payment callbacks are commonly repeated like this, with a unit of a
// minute. New refuses a negative unit, and most below 1.
func Linear(unit time.Duration, most int) Policy {
	if wrong := firstOf(unfit("unit", unit), tooFew(most)); wrong != "" {
		return mistaken(fmt.Sprintf("Linear(%s, %d): %s", unit, most, wrong))
	}
	return func(t task.Task, _ error) (time.Duration, bool) {
		return time.Duration(2*t.Attempt-1) * unit, t.Attempt < most
	}
}

// Exponential retries after a delay that starts at first and doubles until it is longest,
// up to most attempts in total. Half of each delay is random, so that tasks that failed together
// don't return together (Brooker, "Exponential Backoff And Jitter", 2015: equal jitter).
// Each delay is at least 1ms.
// New refuses a negative first, longest below first, and most below 1.
func Exponential(first, longest time.Duration, most int) Policy {
	wrong := firstOf(unfit("first", first), unfit("longest", longest), tooFew(most))
	if wrong == "" && longest < first {
		wrong = "longest must be at least first"
	}
	if wrong != "" {
		return mistaken(fmt.Sprintf("Exponential(%s, %s, %d): %s", first, longest, most, wrong))
	}
	return func(t task.Task, _ error) (time.Duration, bool) {
		delay := retry.Exponential(max(first, time.Millisecond), max(longest, time.Millisecond), t.Attempt-1)
		half := delay / 2
		delay = half + rand.N(half+1) //nolint:gosec // jitter needs no secrecy
		return max(delay, time.Millisecond), t.Attempt < most
	}
}

// Delays retries after each of the delays in turn, so there is one attempt more than
// there are delays. New refuses an empty list and a negative delay.
func Delays(delays ...time.Duration) Policy {
	if len(delays) == 0 {
		return mistaken("Delays(): give at least one delay, or NoRetry if none is meant")
	}
	for i, delay := range delays {
		if wrong := unfit(fmt.Sprintf("delay %d", i+1), delay); wrong != "" {
			return mistaken("Delays: " + wrong)
		}
	}
	return func(t task.Task, _ error) (time.Duration, bool) {
		if t.Attempt < 1 || t.Attempt > len(delays) {
			return 0, false
		}
		return delays[t.Attempt-1], true
	}
}

// unfit returns why d is no delay. Less than a millisecond is a forgotten unit.
func unfit(name string, d time.Duration) string {
	switch {
	case d < 0:
		return fmt.Sprintf("%s must not be negative; got %s", name, d)
	case d > 0 && d < time.Millisecond:
		return fmt.Sprintf("%s must be 0 or at least 1ms; got %s", name, d)
	}
	return ""
}

func tooFew(most int) string {
	if most >= 1 {
		return ""
	}
	return fmt.Sprintf("most must be at least 1, the first attempt; got %d; NoRetry is for no retries", most)
}

func firstOf(wrong ...string) string {
	for _, w := range wrong {
		if w != "" {
			return w
		}
	}
	return ""
}

// mistaken returns the policy for a constructor call with invalid arguments. A policy
// can't return an error, so this one panics with the message when New calls it.
func mistaken(wrong string) Policy {
	return func(task.Task, error) (time.Duration, bool) { panic("consumer." + wrong) }
}

// call calls the policy. A panic or an invalid delay becomes an error.
func (p Policy) call(t task.Task, cause error) (delay time.Duration, ok bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			delay, ok, err = 0, false, fmt.Errorf("Config.Policy: %v", r)
		}
	}()
	delay, ok = p(t, cause)
	if wrong := unfit("delay", delay); ok && wrong != "" {
		return 0, false, errors.New("Config.Policy: " + wrong)
	}
	return delay, ok, nil
}
