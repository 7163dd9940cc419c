package reshard

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestAMoverThatCleansTheLastShardWakesTheReconciler: the mover itself doesn't end the
// change. One place does.
func TestAMoverThatCleansTheLastShardWakesTheReconciler(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	before := b.resharder.cfg.Changed.Fires()
	b.resharder.Move(t.Context(), t.Context(), NewWorker("me/0"), []int{0, 1}, b.p)
	if p, err := b.topic.Placement(t.Context()); err != nil || p != b.p {
		t.Errorf("the placement is %s (%v), want %s until the reconciler ends the change", p, err, b.p)
	}
	if b.resharder.cfg.Changed.Fires() == before {
		t.Fatal("the reconciler was not woken")
	}
	b.reconcile()
	if p, err := b.topic.Placement(t.Context()); err != nil || p.Phase != shard.Stable || p.Shards != 2 {
		t.Errorf("the placement is %s (%v), want 2 shards, stable", p, err)
	}
}

// TestAnOldCountUndoesNoNewerOne: the document in force is older than the placement, and
// the source says so.
func TestAnOldCountUndoesNoNewerOne(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"Consul": true, "files": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.resharder.cfg.Shared = shared
			b.document.Shards, b.document.Version, b.desired = 4, 1, 1
			b.reconcile()
			if p, err := b.topic.Placement(t.Context()); err != nil || p != b.p {
				t.Errorf("the placement is %s (%v), want %s still", p, err, b.p)
			}
			b.desired = 4
			b.reconcile()
			// With files another scanner's file may have brought the count that this one's
			// had, too: only a new one counts.
			p, err := b.topic.Placement(t.Context())
			if began := p.Phase == shard.Migrating; err != nil || began != shared {
				t.Errorf("a change has begun: %t (%v), want %t", began, err, shared)
			}
		})
	}
}

// TestTheChoreReconcilesAtEachChangeAndAtThePace: between them it takes no goroutine, and no call.
func TestTheChoreReconcilesAtEachChangeAndAtThePace(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	pace := new(atomic.Int64)
	pace.Store(int64(time.Hour))
	b.resharder.cfg.Pace = func() time.Duration { return time.Duration(pace.Load()) }
	reads := faults.Count(b.rdb)
	ctx, cancel := context.WithCancel(t.Context())
	wait := b.resharder.cfg.Changed.Follow(ctx, b.resharder.Chore())
	t.Cleanup(func() { cancel(); wait() })
	known := func() bool { p, _ := b.resharder.Known(); return p == b.p }
	check.Until(t, "the placement to be known", known)
	check.Until(t, "a turn to be given", b.resharder.GiveTurn)
	if b.resharder.GiveTurn() {
		t.Error("a turn is given twice")
	}
	check.Until(t, "the look for orphaned tasks to end", func() bool {
		b.resharder.sweeps.Lock()
		defer b.resharder.sweeps.Unlock()
		return !b.resharder.owes()
	})
	if b.resharder.GiveTurn() {
		t.Error("a turn is given although no look is owed")
	}
	b.migrate()
	pace.Store(int64(10 * time.Millisecond))
	b.resharder.cfg.Changed.Fire()
	check.Until(t, "the change to be known", known)
	n := reads.Of("hget")
	check.Until(t, "more readings at the pace", func() bool { return reads.Of("hget") > n+3 })
}

// TestACountThatIsInForceTakesNoReading: of a document that agrees with the placement the
// source isn't asked.
func TestACountThatIsInForceTakesNoReading(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.desired = 8 // would be a change
	b.document.Version = 1
	b.reconcile()
	b.document.Shards = 2 // of the same version: as after another scanner's file
	b.reconcile()
	if p, err := b.topic.Placement(t.Context()); err != nil || p != b.p {
		t.Errorf("the placement is %s (%v), want %s still", p, err, b.p)
	}
}
