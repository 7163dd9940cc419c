// Package balance spreads the work over the fleet. It knows the members and their
// heartbeats, how many tickets each member draws for a topic, and which shards it polls in
// a tick.
//
// No table says which scanner owns which shard. A tick is a short time, by default 1 s.
// Every tick, each scanner draws tickets: the next numbers of a counter in Redis. A ticket
// modulo the number of shards names a shard that the scanner polls until the tick ends. So
// scanners spread over all shards. If one dies, others draw the tickets for its shards.
package balance

// MostWorkers bounds the claims that a scanner may have under way for one topic, unless the
// topic's settings ask for more. A claim is one round trip to Redis, so sixteen at a time can
// claim from thousands of shards per second. See docs/adr/0012.
const MostWorkers = 16

// Shards returns the shards of n consecutive tickets, beginning with first. They are
// consecutive among the scanned shards, and none occurs twice.
func Shards(first int64, n, scanned int) []int {
	at := shardOf(first, scanned)
	shards := make([]int, min(n, scanned))
	for i := range shards {
		shards[i] = (at + i) % scanned
	}
	return shards
}

// Names reports whether one of n consecutive tickets, beginning with first, names a shard.
func Names(first int64, n, scanned, shard int) bool {
	return (shard-shardOf(first, scanned)+scanned)%scanned < n
}

func shardOf(ticket int64, scanned int) int {
	at := int(ticket % int64(scanned))
	if at < 0 { // the counter went past 2^63
		at += scanned
	}
	return at
}

// Scale returns how many workers each scanner has for a topic, and how many tickets it draws
// per tick. The fleet polls scanned shards and has live scanners. set is the number of workers in
// the topic's document. If it is above 0, Scale returns it, with one ticket per worker.
//
// If set is 0, the fleet draws at least one ticket for each shard in each tick. Each scanner
// has one worker more than that takes. The extra tickets cover shards whose next ticket comes
// late: two scanners may draw in another order than in the last tick. Without them, nobody
// could poll a shard for up to a tick. If the fleet would draw two tickets for each shard, each
// scanner polls all shards, because it needs fewer draws then: see docs/adr/0043.
func Scale(set, scanned, live int) (workers, tickets int) {
	if set > 0 {
		return set, min(set, scanned)
	}
	live = max(live, 1)
	share := (scanned + live - 1) / live
	each := (share + MostWorkers - 2) / (MostWorkers - 1)
	workers = (share+each-1)/each + 1
	if tickets = workers * each; tickets*live >= 2*scanned {
		tickets = scanned
	}
	return workers, min(tickets, scanned)
}
