// Package balance is who is alive and who looks where: the members of the fleet and
// their heartbeats, how many workers each of them runs for a topic, and which shards a
// worker attends for a tick.
//
// There is no table of who owns what: a worker draws tickets every tick, and
// consecutive tickets are consecutive shards. So the fleet spreads itself, and
// the shards of a scanner that died are picked up by whoever draws next.
package balance

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
)

// MostWorkers is how many workers a scanner runs for one topic at most, unless its
// settings ask for more: each is a goroutine with timers and calls of its own, idle or
// not, and attends several shards where there are more of them. A claim takes a round trip
// to Redis, so sixteen at a time claim from some thousands of shards a second.
const MostWorkers = 16

// Draw takes tickets of a topic for one tick of a worker, and reads the placement, in
// one round trip. It returns the shards that the tickets stand for, each once, and the
// errors of shard.Topic.Draw.
func Draw(ctx context.Context, t *shard.Topic, tickets int) (shards []int, p shard.Placement, err error) {
	first, p, err := t.Draw(ctx, tickets)
	if err != nil {
		return nil, p, err
	}
	return shardsOf(first, tickets, p.Scanned()), p, nil
}

// shardsOf are those that n tickets from first on stand for among scanned shards: one
// after the other, and none of them twice.
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

// Scale returns how many workers each of live scanners runs for a topic of scanned
// shards, and how many tickets each worker draws a tick. A number that is set by the
// topic's document wins, and its workers draw one ticket each. With set 0 it takes as
// many as attend all shards all the time, and the tickets of one worker more, so that
// tickets come round before a tick is over and attendance overlaps. With no more
// tickets than shards, some would be alone for up to a tick whenever two draws change
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
