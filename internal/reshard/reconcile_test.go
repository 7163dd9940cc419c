package reshard

import (
	"testing"

	"github.com/duefleet/duefleet/internal/shard"
)

// TestAMoverThatCleansTheLastShardWakesTheReconciler: the mover itself doesn't end the
// change. One place does.
func TestAMoverThatCleansTheLastShardWakesTheReconciler(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	b.resharder.Move(t.Context(), t.Context(), NewWorker("me/0"), []int{0, 1}, b.p)
	if p, err := b.topic.Placement(t.Context()); err != nil || p != b.p {
		t.Errorf("the placement is %s (%v), want %s until Run ends the change", p, err, b.p)
	}
	select {
	case <-b.resharder.cfg.Placed:
	default:
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
