package scanner

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// keepingInterval is the time between two looks at how Redis is set.
	keepingInterval = time.Minute
	// keepingTimeout bounds one of them.
	keepingTimeout = 5 * time.Second
)

// keeping is whether Redis is set to keep what it acknowledges. It holds nobody back:
// an operator may have chosen to lose tasks, but shall know of it.
type keeping struct {
	store   *shard.Store
	metrics *telemetry.Metrics
	log     *slog.Logger
	every   time.Duration // keepingInterval, but for tests

	found  atomic.Pointer[[]string] // the hazards; nil: not known yet
	silent bool                     // Redis doesn't tell; watch's own
}

// hazards returns how Redis may lose tasks, as known by the last look.
func (k *keeping) hazards() []string {
	if found := k.found.Load(); found != nil {
		return *found
	}
	return nil
}

// watch looks now, as soon as Redis answers, and then each minute, until ctx ends.
func (k *keeping) watch(ctx context.Context) {
	var pause retry.Backoff
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, keepingTimeout)
		known, err := k.store.Hazards(limited)
		cancel()
		switch {
		case err != nil && !shard.Definite(err): // heartbeats tell that Redis is away
			pause.Wait(ctx)
			continue
		case err != nil:
			k.untold(ctx, err.Error())
		default:
			k.note(ctx, known)
		}
		pause.Reset()
		retry.Sleep(ctx, k.every)
	}
}

// untold says once that Redis doesn't tell how it is set.
func (k *keeping) untold(ctx context.Context, why string) {
	if !k.silent {
		k.log.DebugContext(ctx, "not known whether redis keeps what it acknowledges", "why", why)
	}
	k.silent = true
}

// note keeps what was found, and logs what differs from the look before.
func (k *keeping) note(ctx context.Context, known map[shard.Hazard]string) {
	var found []string
	for _, hazard := range []shard.Hazard{shard.Eviction, shard.Persistence} {
		why, told := known[hazard]
		if !told {
			k.untold(ctx, "INFO has no word of "+string(hazard))
			continue
		}
		k.metrics.SetRedisUnsafe(string(hazard), why != "")
		if why != "" {
			found = append(found, why)
		}
	}
	before := k.hazards()
	k.found.Store(&found)
	switch {
	case slices.Equal(before, found):
	case len(found) > 0:
		k.log.WarnContext(ctx, "redis is set to lose tasks that it acknowledged", "why", strings.Join(found, "; "))
	default:
		k.log.InfoContext(ctx, "redis is set to keep tasks again")
	}
}
