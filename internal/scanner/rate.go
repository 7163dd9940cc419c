package scanner

import (
	"context"
	"time"
)

// rateBurst is how much of a topic's rate may be used at once. rateRest is how long a
// topic waits for more of it at least, so that it doesn't claim tasks one by one.
const (
	rateBurst = 20 * time.Millisecond
	rateRest  = 5 * time.Millisecond
	// ratePatience bounds a call for the rate. Every claim of the topic waits for it.
	ratePatience = 2 * time.Second
	// rateRetry is the pause after a call for the rate that failed.
	rateRetry = 250 * time.Millisecond
)

// allowed returns how many of want tasks the topic's rate allows now. If there are none,
// it returns how long to wait. Without a rate it allows all of them.
func (t *polling) allowed(ctx context.Context, rate, want int) (int, time.Duration, error) {
	if rate == 0 {
		return want, 0, nil
	}
	burst := max(rateBurst, 2*time.Second/time.Duration(rate))
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	n, wait, err := t.store.Store().Registry().Grant(brief, t.store.Name(), rate, want, burst)
	if err == nil {
		t.Works(ctx, "")
	}
	return n, max(wait, rateRest), err
}

// unused gives back the part of the rate that a claim didn't need.
func (t *polling) unused(ctx context.Context, rate, n int) {
	if rate == 0 || n <= 0 {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	if _, _, err := t.store.Store().Registry().Grant(brief, t.store.Name(), rate, -n, rateBurst); err != nil {
		t.log.DebugContext(ctx, "unused rate not given back", "tasks", n, "error", err)
	}
}
