package reshard

import (
	"testing"

	"github.com/duefleet/duefleet/internal/shard"
)

// TestAViewTakesNewerPlacementsAndOlderOnesThatWereReadLater: an older placement that was
// read while the newer one was known is one that Redis fell back to. Otherwise it is an
// old answer.
func TestAViewTakesNewerPlacementsAndOlderOnesThatWereReadLater(t *testing.T) {
	t.Parallel()
	v := unconnected(t).view
	at := func(epoch int64, shards int) shard.Placement {
		return shard.Placement{Epoch: epoch, Shards: shards, Previous: shards, Phase: shard.Stable}
	}
	knows := func(what string, want shard.Placement, removed bool) {
		t.Helper()
		if p, gone := v.known(); p != want || gone != removed {
			t.Fatalf("%s: knows %s, removed %v, want %s, %v", what, p, gone, want, removed)
		}
	}
	fired := func(changed <-chan struct{}, want bool, what string) {
		t.Helper()
		got := false
		select {
		case <-changed:
			got = true
		default:
		}
		if got != want {
			t.Errorf("%s: told %v, want %v", what, got, want)
		}
	}
	for p, differs := range map[shard.Placement]bool{at(5, 4): false, at(3, 2): true, at(5, 9): true} {
		v.learnPlacement(at(5, 4))
		if v.learnPlacement(p) != differs {
			t.Errorf("%s differs from the known one: want %v", p, differs)
		}
	}
	knows("an old answer, and another of one epoch", at(5, 4), false)
	v.show(1, at(5, 4))
	v.learnClean(at(5, 4), []bool{true, false, true, true})
	if !v.isClean(at(5, 4), 0) || v.isClean(at(5, 4), 1) || v.isClean(at(3, 2), 0) || v.unclean(at(5, 4)) != 1 {
		t.Error("3 of 4 shards are clean under this placement alone")
	}
	if !v.learnRemoved() || v.learnRemoved() || !v.learnPlacement(at(5, 4)) {
		t.Error("want a removal to be news once, and a placement to differ from none")
	}
	v.relearn(at(3, 2), at(3, 2))
	knows("what was read before the newer one was known", at(5, 4), true)
	again := v.changed.Next()
	v.relearn(at(5, 4), at(5, 4))
	knows("the same, read again", at(5, 4), false)
	fired(again, true, "made again with the same placement")
	still := v.changed.Next()
	v.relearn(at(5, 4), at(5, 4))
	fired(still, false, "the same, and it was there")
	if !v.wereShown([]int{1}, at(5, 4)) {
		t.Error("forgot what a shard was shown")
	}
	v.relearn(at(5, 4), at(3, 2))
	knows("what Redis fell back to", at(3, 2), false)
	if !v.wereShown([]int{1}, shard.Placement{}) || v.unclean(at(3, 2)) != 2 {
		t.Error("knows of shards what Redis has forgotten")
	}
	v.learnClean(at(5, 4), []bool{true, true, true, true})
	if v.unclean(at(3, 2)) != 2 {
		t.Error("took shards for clean under another placement")
	}
}
