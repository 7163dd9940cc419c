package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// The heap grows to leastBytes before garbage is collected.
	leastBytes = 32 << 20
	// Without LeastHeap and with a GOGC of 100 it grows to runtimeMinimum.
	runtimeMinimum = 4 << 20
)

// LeastHeap lets the heap of a server grow to 32 MiB before garbage is collected, and else to twice
// what lives. Where little lives, a busy server would collect several times a second, and an eighth to
// a quarter of its work would be that. It does nothing if GOGC is set. See docs/adr/0046.
func LeastHeap() {
	if os.Getenv("GOGC") == "" {
		leastHeap(leastBytes)
	}
}

func leastHeap(bytes uint64) (stop func()) {
	var stopped atomic.Bool
	debug.SetGCPercent(int(100 * bytes / runtimeMinimum))
	afterEachCollection(func() bool {
		if !stopped.Load() {
			debug.SetGCPercent(percentFor(bytes, live()))
		}
		return !stopped.Load()
	})
	return func() { stopped.Store(true) }
}

// percentFor returns the GC percent with which the heap grows to least bytes, when live bytes live.
func percentFor(least, live uint64) int {
	if live == 0 || least <= 2*live {
		return 100
	}
	return int(100*least/live) - 100
}

// live returns how many bytes lived at the last collection.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachCollection calls do after each garbage collection, until it returns false.
func afterEachCollection(do func() (goOn bool)) {
	garbage := new([64]byte) // large enough to be collected by itself
	runtime.AddCleanup(garbage, func(int) {
		if do() {
			afterEachCollection(do)
		}
	}, 0)
}
