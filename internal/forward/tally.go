package forward

import (
	"context"
	"sync"

	"github.com/duefleet/duefleet/internal/retry"
)

// tally counts the messages without a Result.
type tally struct {
	mu   sync.Mutex
	n    int
	zero retry.Broadcast
}

func (t *tally) add(n int) {
	t.mu.Lock()
	t.n += n
	empty := t.n == 0
	t.mu.Unlock()
	if empty {
		t.zero.Fire()
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// wait returns nil when nothing is left, or ctx's error.
func (t *tally) wait(ctx context.Context) error {
	for {
		zero := t.zero.Next()
		if t.count() == 0 {
			return nil
		}
		select {
		case <-zero:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
