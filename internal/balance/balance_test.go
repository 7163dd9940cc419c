package balance

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestWorkersCoverEveryShardWithOneToSpare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scanned := rapid.IntRange(1, 4096).Draw(t, "scanned")
		live := rapid.IntRange(1, 300).Draw(t, "live")
		all := Workers(scanned, live) * live
		if all < scanned+live {
			t.Fatalf("%d scanners run %d workers for %d shards: none to spare", live, all, scanned)
		}
		if all >= scanned+2*live {
			t.Fatalf("%d scanners run %d workers for %d shards: more than it takes", live, all, scanned)
		}
	})
}

func TestWorkersWithoutAFleet(t *testing.T) {
	t.Parallel()
	if got := Workers(4, 0); got != 5 {
		t.Fatalf("Workers(4, 0) = %d, want 5: a scanner that has not heard of itself yet counts as one", got)
	}
}

func TestConsecutiveTicketsAreConsecutiveShards(t *testing.T) {
	t.Parallel()
	for _, first := range []int64{0, 1, 17, math.MaxInt64 - 9, math.MinInt64} {
		seen := map[int]bool{}
		for i := range int64(8) {
			s := Shard(first+i, 8)
			if s < 0 || s > 7 || seen[s] {
				t.Fatalf("tickets from %d: shard %d drawn twice or out of range", first, s)
			}
			seen[s] = true
		}
	}
}
