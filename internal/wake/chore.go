package wake

import (
	"context"
	"sync"
	"sync/atomic"
)

// Chore is work that begins when a change makes it necessary. Only one Do of a chore runs at a
// time, and Wanted isn't called meanwhile.
type Chore struct {
	Wanted func() bool
	Do     func(ctx context.Context)
	busy   atomic.Bool
}

// Follow looks at each change which chores are wanted, and does them until ctx ends. It returns when
// they have ended. While nothing changes, they have one goroutine in all.
func (b *Broadcast) Follow(ctx context.Context, chores ...*Chore) {
	var busy sync.WaitGroup
	defer busy.Wait()
	ended := NewSignal()
	for ctx.Err() == nil {
		changed := b.Next()
		for _, c := range chores {
			if c.busy.Load() || !c.Wanted() {
				continue
			}
			c.busy.Store(true)
			busy.Go(func() {
				c.Do(ctx)
				c.busy.Store(false)
				ended.Send()
			})
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ended:
		}
	}
}
