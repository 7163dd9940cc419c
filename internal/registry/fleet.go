package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Heartbeat notes that an instance lives, and returns how many instances do: they were
// silent for no longer than alive. It forgets instances that were silent for longer than
// forget. Its answer renews the estimate of Redis's clock.
func (r *Registry) Heartbeat(ctx context.Context, instance string, alive, forget time.Duration) (int, error) {
	args := []any{instance, alive.Milliseconds(), forget.Milliseconds()}
	reply := r.scripts.Run(ctx, luascript.Call{Script: "heartbeat", Keys: []string{r.key("fleet")}, Args: args}).Values()
	live, now := int(reply.Int()), reply.Int()
	var dead []string
	for reply.Left() > 0 {
		dead = append(dead, reply.Text())
	}
	if err := reply.Err(); err != nil {
		return 0, fmt.Errorf("heartbeat: %w", err)
	}
	r.scripts.HearTime(ctx, now)
	if len(dead) > 0 {
		if err := r.client(ctx).HDel(ctx, r.key("fleet:notes"), dead...).Err(); err != nil {
			return live, fmt.Errorf("forget a dead scanner: %w", err)
		}
	}
	return live, nil
}

// Leave removes an instance from the fleet.
func (r *Registry) Leave(ctx context.Context, instance string) error {
	if err := r.client(ctx).ZRem(ctx, r.key("fleet"), instance).Err(); err != nil {
		return fmt.Errorf("leave the fleet: %w", err)
	}
	return r.client(ctx).HDel(ctx, r.key("fleet:notes"), instance).Err()
}

// Describe stores an instance's note about itself. full reports that Redis refuses new data
// because it is at maxmemory; the note is stored nevertheless.
func (r *Registry) Describe(ctx context.Context, instance string, note []byte) (full bool, err error) {
	err = r.client(ctx).HSet(ctx, r.key("fleet:notes"), instance, note).Err()
	if full = redis.HasErrorPrefix(err, "OOM"); full {
		err = r.scripts.Run(ctx, luascript.Call{Script: "describe", Keys: []string{r.key("fleet:notes")},
			Args: []any{instance, note}}).Err()
	}
	return full, wrapIf(err, "describe instance %s", instance)
}

// Heartbeat is the last heartbeat of an instance.
type Heartbeat struct {
	Instance string
	// At is when it came, by Redis's clock.
	At time.Time
	// Note is the instance's note about itself; "" before Describe and after Leave.
	Note string
}

// Fleet returns the last heartbeat of each instance that is not forgotten, the oldest
// first. It also returns Redis's clock from before it read them.
func (r *Registry) Fleet(ctx context.Context) (all []Heartbeat, now time.Time, err error) {
	millis, err := r.scripts.LatestNow(ctx)
	if err != nil {
		return nil, now, err
	}
	scores, err := r.client(ctx).ZRangeWithScores(ctx, r.key("fleet"), 0, -1).Result()
	if err != nil {
		return nil, now, fmt.Errorf("list the fleet: %w", err)
	}
	notes, err := r.client(ctx).HGetAll(ctx, r.key("fleet:notes")).Result()
	if err != nil {
		return nil, now, fmt.Errorf("list the fleet: %w", err)
	}
	for _, z := range scores {
		instance, ok := z.Member.(string)
		if !ok {
			return nil, now, fmt.Errorf("list the fleet: Redis answered a %T, not a name", z.Member)
		}
		all = append(all, Heartbeat{instance, time.UnixMilli(int64(z.Score)).UTC(), notes[instance]})
	}
	return all, time.UnixMilli(millis), nil
}
