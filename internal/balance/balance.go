// Package balance says which shard a worker looks at next, and how many workers
// it takes to look at all of them.
//
// There is no table of who owns what: a worker draws a ticket every tick, and
// consecutive tickets are consecutive shards. So the fleet spreads itself, and
// the shards of a scanner that died are picked up by whoever draws next.
package balance

// Shard is the shard that a ticket stands for among scanned shards.
func Shard(ticket int64, scanned int) int {
	n := int(ticket % int64(scanned))
	if n < 0 { // the counter went past 2^63
		n += scanned
	}
	return n
}

// Workers is how many workers each of live scanners needs to attend scanned
// shards all the time: enough to cover them, and one more, so that tickets come
// round before a tick is over and attendance overlaps. With exactly as many
// workers as shards, a shard would be alone for up to a tick whenever two draws
// change places.
func Workers(scanned, live int) int {
	live = max(live, 1)
	return (scanned+live-1)/live + 1
}
