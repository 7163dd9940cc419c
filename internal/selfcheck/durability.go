package selfcheck

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// durabilityInterval is the time between two durability checks.
	durabilityInterval = time.Minute
	// durabilityTimeout bounds one of them.
	durabilityTimeout = 5 * time.Second
	// nearlyFull is the share of maxmemory above which Redis is nearly full.
	nearlyFull = 0.9
)

// Durability checks whether Redis is set to keep what it acknowledges, and has room for more. It
// blocks nothing, because an operator may have chosen to lose tasks, but must know of it.
type Durability struct {
	Registry *registry.Registry
	Metrics  *Metrics
	Log      *slog.Logger
	Every    time.Duration // between two checks; 0: a minute

	found  atomic.Pointer[[]string]          // the warnings; nil: not known so far
	memory atomic.Pointer[[]registry.Memory] // nil: not known so far
	silent bool                              // Redis doesn't report its settings; only Watch uses it
}

// Warnings returns how Redis may lose tasks, as found by the last check.
func (k *Durability) Warnings() []string {
	if found := k.found.Load(); found != nil {
		return *found
	}
	return nil
}

// Unsafe returns that Redis may lose what it acknowledged.
func (k *Durability) Unsafe() []problem.Problem {
	if warnings := k.Warnings(); len(warnings) > 0 {
		return []problem.Problem{problem.Unsafe(warnings)}
	}
	return nil
}

// NearlyFull returns that Redis will soon refuse new tasks.
func (k *Durability) NearlyFull() []problem.Problem {
	if why := k.nearlyFull(); why != "" {
		return []problem.Problem{problem.New(problem.RedisNearlyFull, "", "redis will soon refuse new tasks: "+why)}
	}
	return nil
}

// Watch runs the check as soon as Redis answers, and then again and again until ctx ends.
func (k *Durability) Watch(ctx context.Context) {
	var pause retry.Backoff
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, durabilityTimeout)
		known, err := k.Registry.Inspect(limited)
		cancel()
		switch {
		case err != nil && !shard.Definite(err): // heartbeats report that Redis is away
			pause.Wait(ctx)
			continue
		case err != nil:
			k.unknown(ctx, err.Error())
		default:
			k.recordWarnings(ctx, known.Warnings)
			k.recordMemory(ctx, known.Memory)
		}
		pause.Reset()
		retry.Sleep(ctx, cmp.Or(k.Every, durabilityInterval))
	}
}

// unknown logs once that Redis doesn't report its settings.
func (k *Durability) unknown(ctx context.Context, why string) {
	if !k.silent {
		k.Log.DebugContext(ctx, "not known whether redis keeps what it acknowledges", "why", why)
	}
	k.silent = true
}

// recordWarnings keeps the result of a check, and logs it if it differs from the one before.
func (k *Durability) recordWarnings(ctx context.Context, known map[registry.Warning]string) {
	var found []string
	for _, warning := range []registry.Warning{registry.Eviction, registry.Persistence} {
		why, reported := known[warning]
		if !reported {
			k.unknown(ctx, "INFO doesn't report "+string(warning))
			continue
		}
		k.Metrics.RedisUnsafe.Set(why != "", string(warning))
		if why != "" {
			found = append(found, why)
		}
	}
	before := k.Warnings()
	k.found.Store(&found)
	switch {
	case slices.Equal(before, found):
	case len(found) > 0:
		k.Log.WarnContext(ctx, "redis is set to lose tasks that it acknowledged", "why", strings.Join(found, "; "))
	default:
		k.Log.InfoContext(ctx, "redis is set to keep tasks again")
	}
}

// recordMemory keeps the memory of the servers, the fullest first.
func (k *Durability) recordMemory(ctx context.Context, all []registry.Memory) {
	if len(all) == 0 {
		return
	}
	before := k.nearlyFull()
	k.memory.Store(&all)
	k.Metrics.fullest(all[0].Used, all[0].Max)
	switch after := k.nearlyFull(); {
	case before == "" && after != "":
		k.Log.WarnContext(ctx, "redis is nearly full", "why", after)
	case before != "" && after == "":
		k.Log.InfoContext(ctx, "redis is no longer nearly full")
	}
}

// nearlyFull returns which servers will soon refuse new tasks; "" if none will.
func (k *Durability) nearlyFull() string {
	var texts []string
	if all := k.memory.Load(); all != nil {
		for _, m := range *all {
			if m.Share() > nearlyFull && !m.Evicts {
				texts = append(texts, fmt.Sprintf("%s uses %.0f %% of its maxmemory of %d bytes", m.Addr, 100*m.Share(), m.Max))
			}
		}
	}
	return strings.Join(texts, "; ")
}
