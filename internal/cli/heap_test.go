package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestTheHeapGrowsBeforeGarbageIsCollected: garbage of 40 MB is collected at most once with a least
// heap of 64 MB, and without it several times.
func TestTheHeapGrowsBeforeGarbageIsCollected(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var kept []byte
	collections := func() uint32 {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 40 << 4 {
			kept = make([]byte, 1<<16)
		}
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	if n := collections(); n < 4 {
		t.Errorf("%d collections", n)
	}
	defer leastHeap(64 << 20)()
	if n := collections(); n > 1 {
		t.Errorf("%d collections with a least heap", n)
	}
	_ = kept
	for _, row := range []struct {
		least, live uint64
		want        int
	}{{64, 0, 100}, {64, 8, 700}, {64, 32, 100}, {64, 31, 106}, {64, 500, 100}} {
		check.Equal(t, "percent", percentFor(row.least, row.live), row.want)
	}
}
