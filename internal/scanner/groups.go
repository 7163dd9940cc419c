package scanner

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// groupsInterval is the time between two rounds in which a scanner asks whether to sweep the
	// index of a topic's groups.
	groupsInterval = time.Hour
	// groupsHold is the time between two sweeps of a topic's index by the fleet.
	groupsHold = 6 * time.Hour
	// groupsPause is the pause after each page of an index, so that a sweep leaves Redis to
	// others.
	groupsPause = 100 * time.Millisecond
)

// groups sweeps the indexes of groups. It removes members that crashes left there. Members of
// tasks that were settled while the shard count changed go, too. They only take memory.
type groups struct {
	topics func() []*served
	log    *slog.Logger
	every  time.Duration // groupsInterval, except in tests
}

// watch sweeps until ctx ends.
func (g *groups) watch(ctx context.Context) {
	for retry.Sleep(ctx, rand.N(g.every)+g.every/2) { //nolint:gosec // spreads the rounds of a fleet
		for _, v := range g.topics() {
			if err := g.sweep(ctx, v.topic); err != nil && ctx.Err() == nil && !shard.Definite(err) {
				break // heartbeats report that Redis is away
			}
		}
	}
}

// sweep sweeps the index of a topic's groups, if it is this scanner's turn. Before there is a
// placement it could only fail, and would take the turn.
func (g *groups) sweep(ctx context.Context, t *topic) error {
	if p, _ := t.resharder.Known(); p.Epoch == 0 {
		return nil
	}
	mine, err := t.store.BeginSweep(ctx, groupsHold)
	if err != nil || !mine {
		return err
	}
	swept := 0
	for _, part := range t.store.Index() {
		for over := false; !over && err == nil && ctx.Err() == nil; {
			var n int
			n, over, err = t.tasks.SweepGroups(ctx, part)
			swept += n
			if !over {
				retry.Sleep(ctx, groupsPause)
			}
		}
	}
	if swept > 0 || err != nil {
		g.log.InfoContext(ctx, "index of groups swept", "topic", t.name, "members", swept, "error", err)
	}
	return err
}
