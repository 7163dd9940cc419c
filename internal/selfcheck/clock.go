package selfcheck

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// ClockLimit is the largest difference of two clocks that is no problem. The doctor has
	// the same limit.
	ClockLimit = time.Second
	// clockInterval is the time between two looks at Redis's clock.
	clockInterval = 5 * time.Second
	// clockTimeout bounds one of them.
	clockTimeout = 5 * time.Second
)

// Clock checks whether Redis's clock agrees with this machine's. Redis's clock decides when
// tasks are due. It changes when somebody sets it, and in a failover.
type Clock struct {
	Registry *registry.Registry
	Metrics  *Metrics
	Log      *slog.Logger
	Every    time.Duration // between two looks; 0: 5 s

	found atomic.Pointer[problem.Problem] // nil: the clocks agree, or nothing is known

	// Only Watch uses these.
	last   map[string]registry.Clock // the last reading of each server
	steps  map[string]clockStep      // the last step of each server's clock
	silent bool                      // Redis doesn't tell its time, and the log says so
}

// clockStep says that a server's clock was set, or that another server took over.
type clockStep struct {
	by time.Duration // ahead, if positive
	at time.Time     // when it was seen
}

// Watch runs the check until ctx ends.
func (k *Clock) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, clockTimeout)
		readings, err := k.Registry.Clocks(limited)
		cancel()
		if err != nil && !k.silent && ctx.Err() == nil { // heartbeats report that Redis is away
			k.Log.DebugContext(ctx, "not known whether redis's clock agrees", "error", connect.Advised("redis", err))
		}
		k.silent = err != nil
		k.record(ctx, readings)
		retry.Sleep(ctx, cmp.Or(k.Every, clockInterval))
	}
}

// record compares readings with this machine's clock and with the readings before. The
// problem is about the clock that is wrong the most.
func (k *Clock) record(ctx context.Context, readings []registry.Clock) {
	if len(readings) == 0 {
		return
	}
	k.noteSteps(readings)
	worst, certain := readings[0], true
	for _, c := range readings {
		certain = certain && c.Uncertain <= ClockLimit
		if c.Ahead().Abs()-c.Uncertain > worst.Ahead().Abs()-worst.Uncertain {
			worst = c
		}
	}
	k.Metrics.ClockOffset.WithLabelValues().Set(worst.Ahead().Seconds())
	before := k.found.Load()
	if worst.Ahead().Abs()-worst.Uncertain > ClockLimit {
		p := k.problem(worst, len(readings) > 1)
		if k.found.Store(&p); before == nil {
			k.Log.WarnContext(ctx, "redis's clock and this machine's differ", "why", p.Text)
		}
		return
	}
	if !certain { // the answers were too slow to tell
		return
	}
	if k.found.Store(nil); before != nil {
		k.Log.InfoContext(ctx, "redis's clock and this machine's agree again")
	}
	k.steps = nil
}

// noteSteps finds the clocks that moved since the last readings, compared with this
// machine's monotonic clock.
func (k *Clock) noteSteps(readings []registry.Clock) {
	last := map[string]registry.Clock{}
	for _, c := range readings {
		last[c.Addr] = c
		before, known := k.last[c.Addr]
		if moved := c.Moved(before); known && moved.Abs()-c.Uncertain-before.Uncertain > ClockLimit {
			if k.steps == nil {
				k.steps = map[string]clockStep{}
			}
			k.steps[c.Addr] = clockStep{moved, c.Read.UTC()}
		}
	}
	k.last = last
}

// problem returns the problem with a clock. The text names the server if there are several.
func (k *Clock) problem(c registry.Clock, several bool) problem.Problem {
	name, ahead := "redis's clock", c.Ahead().Round(100*time.Millisecond)
	if several {
		name = "the clock of " + c.Addr
	}
	way, effect := "ahead of", "early"
	if ahead < 0 {
		way, effect = "behind", "late"
	}
	text := fmt.Sprintf("%s is %s %s this machine's: if this machine's clock is right, tasks leave that much too %s", name,
		ahead.Abs(), way, effect)
	step, moved := k.steps[c.Addr]
	if moved {
		text += fmt.Sprintf("; it moved by %s at %s", step.by.Round(100*time.Millisecond), step.at.Format(time.RFC3339))
	}
	p := problem.New(problem.ClockOffset, "", text)
	p.Since = step.at
	p.Facts = map[string]string{"offset_seconds": strconv.FormatFloat(ahead.Seconds(), 'f', 1, 64)}
	return p
}

// Problems returns that Redis's clock differs from this machine's.
func (k *Clock) Problems() []problem.Problem { return one(k.found.Load()) }

// Agrees fails while Redis's clock differs from this machine's. The scanner delivers by Redis's
// clock all the same, so the check isn't required.
func (k *Clock) Agrees() telemetry.Result {
	return telemetry.Probed("redis's clock agrees with this machine's", k.Problems()...)
}
