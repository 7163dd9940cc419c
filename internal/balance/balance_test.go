package balance

import (
	"math"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

func TestTicketsCoverEveryShardWithOneWorkerToSpare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scanned := rapid.IntRange(1, 4096).Draw(t, "scanned")
		live := rapid.IntRange(1, 300).Draw(t, "live")
		workers, tickets := Scale(0, scanned, live)
		if workers > MostWorkers {
			t.Fatalf("%d scanners run %d workers each for %d shards", live, workers, scanned)
		}
		if tickets == scanned {
			return
		}
		all, spare := tickets*live, tickets/workers*live
		if all < scanned+spare {
			t.Fatalf("%d scanners of %d workers draw %d tickets for %d shards: no worker to spare", live, workers, all, scanned)
		}
		if all >= min(scanned+2*spare, 2*scanned) {
			t.Fatalf("%d scanners of %d workers draw %d tickets for %d shards: more than it takes", live, workers, all, scanned)
		}
	})
}

func TestScale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, scanned, live, workers, tickets int }{
		{0, 4, 0, 5, 4}, // before its first heartbeat a scanner counts itself
		{0, 1, 1, 2, 1},
		{0, 4, 2, 3, 3},
		{0, 4, 3, 3, 4}, // the fleet would draw nine
		{0, 4, 20, 2, 4},
		{0, 8, 3, 4, 4},
		{0, MostWorkers - 1, 1, MostWorkers, MostWorkers - 1},
		{0, MostWorkers, 1, MostWorkers/2 + 1, MostWorkers},
		{0, 4096, 1, 16, 4096},
		{0, 4096, 4, 16, 16 * 69},
		{3, 4096, 4, 3, 3}, // the document says how many
		{3, 2, 4, 3, 2},
	} {
		if workers, tickets := Scale(c.set, c.scanned, c.live); workers != c.workers || tickets != c.tickets {
			t.Errorf("Scale(%d, %d, %d) = %d, %d, want %d, %d", c.set, c.scanned, c.live, workers, tickets, c.workers, c.tickets)
		}
	}
}

func TestConsecutiveTicketsAreConsecutiveShards(t *testing.T) {
	t.Parallel()
	for _, first := range []int64{0, 1, 17, math.MaxInt64 - 9, math.MinInt64} {
		for _, n := range []int{1, 3, 8, 20} {
			seen := map[int]bool{}
			for at := int64(0); len(seen) < 8; at += int64(n) {
				for i, s := range Shards(first+at, n, 8) {
					if want := Shards(first, 1, 8)[0] + int(at) + i; s != want%8 {
						t.Fatalf("tickets from %d: the one after %d is shard %d, want %d", first, at+int64(i), s, want%8)
					}
					seen[s] = true
				}
			}
		}
	}
}

func TestMoreTicketsThanShardsAreEachShardOnce(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, s := range Shards(5, 66, 3) {
		if seen[s] {
			t.Errorf("shard %d twice", s)
		}
		seen[s] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d of 3 shards", len(seen))
	}
}
