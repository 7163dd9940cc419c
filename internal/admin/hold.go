package admin

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
)

// AwaitPause waits until all live scanners that report about the topic say that it is
// paused, or that it isn't, for Patience at most. It returns the instances of those that
// don't, and how many scanners live.
func AwaitPause(ctx context.Context, store *shard.Store, topic string, paused bool) (others []string, live int,
	err error) {
	over := time.After(Patience)
	for {
		members, err := balance.Members(ctx, store)
		if err != nil {
			return nil, 0, err
		}
		others, live = nil, 0
		for _, m := range balance.Live(members) {
			live++
			if m.Topics[topic].Paused != paused {
				others = append(others, m.Instance)
			}
		}
		if len(others) == 0 {
			return nil, live, nil
		}
		select {
		case <-ctx.Done():
			return others, live, ctx.Err()
		case <-over:
			return others, live, nil
		case <-time.After(lookEvery):
		}
	}
}
