// Package balance says which shards a worker looks at next, and how many workers
// it takes to look at all of them.
//
// There is no table of who owns what: a worker draws tickets every tick, and
// consecutive tickets are consecutive shards. So the fleet spreads itself, and
// the shards of a scanner that died are picked up by whoever draws next.
package balance

// MostWorkers is how many workers a scanner runs for one topic at most, unless its
// settings ask for more: each is a goroutine with timers and calls of its own, and
// attends several shards where there are more of them.
const MostWorkers = 64

// Shards are those that n tickets from first on stand for among scanned shards: one
// after the other, and none of them twice.
func Shards(first int64, n, scanned int) []int {
	at := int(first % int64(scanned))
	if at < 0 { // the counter went past 2^63
		at += scanned
	}
	shards := make([]int, min(n, scanned))
	for i := range shards {
		shards[i] = (at + i) % scanned
	}
	return shards
}

// Split is how many workers each of live scanners needs to attend scanned shards all
// the time, and how many tickets each of them draws a tick: enough to cover the
// shards, and those of one worker more, so that tickets come round before a tick is
// over and attendance overlaps. With no more tickets than shards, some would be alone
// for up to a tick whenever two draws change places.
func Split(scanned, live int) (workers, tickets int) {
	live = max(live, 1)
	share := (scanned + live - 1) / live
	tickets = (share + MostWorkers - 2) / (MostWorkers - 1)
	return (share+tickets-1)/tickets + 1, tickets
}
