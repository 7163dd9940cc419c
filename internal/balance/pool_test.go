package balance

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
)

// crowd is a pool whose workers end within a minute when they are not wanted any more.
type crowd struct {
	Pool
	wanted  atomic.Int64
	running [10]atomic.Int64 // by worker
	changed retry.Broadcast
}

func newCrowd() *crowd {
	c := &crowd{}
	c.Pool = Pool{
		Wanted:  func() int { return int(c.wanted.Load()) },
		Changed: c.changed.Next,
		Work: func(ctx context.Context, number int) {
			c.running[number].Add(1)
			defer c.running[number].Add(-1)
			for retry.Sleep(ctx, time.Minute) && number < int(c.wanted.Load()) {
			}
		},
	}
	return c
}

// runs ends the test unless the first n workers run, once each, and no others.
func (c *crowd) runs(t *testing.T, when string, n int) {
	t.Helper()
	for number := range c.running {
		want := int64(0)
		if number < n {
			want = 1
		}
		if got := c.running[number].Load(); got != want {
			t.Fatalf("%s: worker %d runs %d times, want %d", when, number, got, want)
		}
	}
}

func TestAPoolRunsAsManyWorkersAsAreWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		synctest.Wait()
		c.runs(t, "none is wanted", 0)
		c.wanted.Store(3)
		c.changed.Fire()
		synctest.Wait()
		c.runs(t, "after a change", 3)
		c.wanted.Store(5)
		time.Sleep(2 * scaleInterval)
		c.runs(t, "without being told", 5)
		c.wanted.Store(2)
		c.changed.Fire()
		time.Sleep(time.Minute)
		synctest.Wait()
		c.runs(t, "fewer are wanted", 2)
		c.wanted.Store(4)
		time.Sleep(2 * scaleInterval)
		c.runs(t, "those that have returned are wanted again", 4)
		stop()
		<-ended
		c.runs(t, "after the end", 0)
	})
}
