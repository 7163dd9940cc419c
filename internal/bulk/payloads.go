package bulk

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// MostPayloads is how many payloads Payloads reads at once.
const MostPayloads = 100

// Payloads returns the payloads of up to MostPayloads stored tasks, by ID. A task that isn't
// stored any more, or whose record can't be read, is missing.
func Payloads(ctx context.Context, topic *shard.Topic, ids []string) (map[string][]byte, error) {
	payloads := make(map[string][]byte, len(ids))
	for i, got := range router.New(topic.Store()).Topic(topic.Name()).GetMany(ctx, ids) {
		switch {
		case got.Err == nil:
			payloads[ids[i]] = got.Task.Payload
		case errors.Is(got.Err, task.ErrUnavailable), shard.Denied(got.Err):
			return nil, got.Err
		}
	}
	return payloads, nil
}
