// Package balance spreads the work over the fleet. It knows the members and their
// heartbeats, how many workers each member runs for a topic, and which shards a worker
// polls in a tick.
//
// No table says which scanner owns which shard. A tick is a short time, by default 1 s.
// Every tick, each worker draws tickets: the next numbers of a counter in Redis. The
// ticket modulo the number of shards names the shard that the worker polls until the tick
// ends. So workers spread over all shards. If a scanner dies, other workers draw the
// tickets for its shards.
package balance

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
)

// MostWorkers bounds the workers that a scanner runs for one topic, unless the topic's
// settings ask for more. Each worker is a goroutine with its own timers and calls to
// Redis, even when idle. If there are more shards than workers, a worker polls several. A
// claim is one round trip to Redis, so sixteen workers can claim from thousands of shards
// per second. See docs/adr/0012.
const MostWorkers = 16

// Draw draws a worker's tickets for one tick of a topic and reads the placement, in one
// round trip. It returns the shards that the tickets name, each once. It returns the
// errors of shard.Topic.Draw.
func Draw(ctx context.Context, t *shard.Topic, tickets int) (shards []int, p shard.Placement, err error) {
	first, p, err := t.Draw(ctx, tickets)
	if err != nil {
		return nil, p, err
	}
	return shardsOf(first, tickets, p.Scanned()), p, nil
}

// shardsOf returns the shards of n consecutive tickets, beginning with first. They are
// consecutive among the scanned shards, and none occurs twice.
func shardsOf(first int64, n, scanned int) []int {
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

// Scale returns how many workers each scanner runs for a topic, and how many tickets each
// worker draws per tick. The fleet polls scanned shards and has live scanners. set is the
// number of workers in the topic's document. If it is above 0, Scale returns it, with one
// ticket per worker.
//
// If set is 0, the fleet draws at least one ticket for each shard in each tick. Each
// scanner runs one worker more than that takes. The extra workers cover shards whose next
// ticket comes late: two workers may draw in another order than in the last tick. Without
// them, a shard could have no worker for up to a tick.
func Scale(set, scanned, live int) (workers, tickets int) {
	if set > 0 {
		return set, 1
	}
	live = max(live, 1)
	share := (scanned + live - 1) / live
	tickets = (share + MostWorkers - 2) / (MostWorkers - 1)
	return (share+tickets-1)/tickets + 1, tickets
}
