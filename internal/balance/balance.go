// Package balance spreads the work over the fleet. It knows the members and their
// heartbeats, how many workers each member runs for a topic, and which shards a worker
// polls in a tick.
//
// No table says who owns which shard. A worker draws tickets every tick, and consecutive
// tickets stand for consecutive shards. So the fleet spreads itself, and the next workers
// that draw pick up the shards of a dead scanner.
package balance

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
)

// MostWorkers bounds the workers that a scanner runs for one topic, unless the topic's
// settings ask for more. Each worker is a goroutine with timers and calls of its own,
// even when idle. If there are more shards than workers, a worker polls several. A claim
// takes a round trip to Redis, so sixteen workers claim from some thousands of shards a
// second. See docs/adr/0012.
const MostWorkers = 16

// Draw takes tickets of a topic for one tick of a worker and reads the placement, in one
// round trip. It returns the shards that the tickets stand for, each once. It returns the
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

// Scale returns how many workers each of live scanners runs for a topic with scanned
// shards, and how many tickets each worker draws per tick. A set above 0 is the number of
// workers in the topic's document; each of these workers draws one ticket. With set 0 the
// workers cover all shards all the time, and each scanner runs one worker more. So
// tickets come round before a tick is over, and polling overlaps. With exactly as many
// tickets as shards, a shard could be alone for up to a tick whenever two draws change
// places.
func Scale(set, scanned, live int) (workers, tickets int) {
	if set > 0 {
		return set, 1
	}
	live = max(live, 1)
	share := (scanned + live - 1) / live
	tickets = (share + MostWorkers - 2) / (MostWorkers - 1)
	return (share+tickets-1)/tickets + 1, tickets
}
