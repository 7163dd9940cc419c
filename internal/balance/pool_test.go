package balance

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/test/wait"
)

// rounds is how often a crowd's worker checks whether it is wanted.
const rounds = 30 * time.Second

// crowd is a pool whose workers end after a round if they are no longer wanted.
type crowd struct {
	Pool
	wanted  atomic.Int64
	running [10]atomic.Int64 // by worker
	changed wake.Broadcast
}

func newCrowd() *crowd {
	c := &crowd{}
	c.Pool = Pool{
		Wanted:  func() int { return int(c.wanted.Load()) },
		Changed: c.changed.Next,
		Work: func(ctx context.Context, number int) {
			c.running[number].Add(1)
			defer c.running[number].Add(-1)
			for retry.Sleep(ctx, rounds) && number < int(c.wanted.Load()) {
			}
		},
	}
	return c
}

// runs reports whether exactly the first n workers run, each once.
func (c *crowd) runs(n int) bool {
	for number := range c.running {
		want := int64(0)
		if number < n {
			want = 1
		}
		if c.running[number].Load() != want {
			return false
		}
	}
	return true
}

// comes waits until n workers run. It fails the test if that takes longer than within, by
// the bubble's clock.
func (c *crowd) comes(t *testing.T, when string, n int, within time.Duration) {
	t.Helper()
	began := time.Now()
	wait.For(t, when, func() bool { synctest.Wait(); return c.runs(n) })
	if took := time.Since(began); took > within {
		t.Errorf("%s: the first %d workers run after %v, want %v", when, n, took, within)
	}
}

func TestAPoolRunsAsManyWorkersAsAreWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		c.comes(t, "none is wanted", 0, 0)
		c.wanted.Store(3)
		c.changed.Fire()
		c.comes(t, "after a change", 3, 0)
		c.wanted.Store(5)
		c.comes(t, "without being told", 5, 2*scaleInterval)
		c.wanted.Store(2)
		c.changed.Fire()
		c.comes(t, "fewer are wanted", 2, rounds)
		c.wanted.Store(4)
		c.comes(t, "those that have returned are wanted again", 4, 2*scaleInterval)
		stop()
		<-ended
		c.comes(t, "after the end", 0, 0)
	})
}
