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

// Follow looks at once, and at each change, which chores are wanted, and does them until ctx ends.
// While nothing changes, it takes no goroutine. Call wait once ctx has ended: it returns when all
// chores have ended. Chores can't be followed twice.
func (b *Broadcast) Follow(ctx context.Context, chores ...*Chore) (wait func()) {
	f := &follower{ctx: ctx, chores: chores}
	b.mu.Lock()
	b.followers = append(b.followers, f)
	b.mu.Unlock()
	f.look()
	return f.wait
}

// follower follows a broadcast.
type follower struct {
	ctx    context.Context
	chores []*Chore
	busy   sync.WaitGroup

	mu      sync.Mutex
	ended   bool // wait was called
	looking bool
	again   bool // something has changed since the look began
}

// look begins a look, or makes the one that is under way start again.
func (f *follower) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again = f.looking; f.ended || f.looking || f.ctx.Err() != nil {
		return
	}
	f.looking = true
	f.busy.Go(func() {
		for more := true; more; more = f.more() {
			f.begin()
		}
	})
}

// begin begins the chores that are wanted.
func (f *follower) begin() {
	for _, c := range f.chores {
		if f.ctx.Err() != nil {
			return
		}
		if c.busy.Load() || !c.Wanted() {
			continue
		}
		c.busy.Store(true)
		f.busy.Go(func() {
			c.Do(f.ctx)
			c.busy.Store(false)
			f.look()
		})
	}
}

// more reports whether a look must start again. If not, it is over.
func (f *follower) more() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looking, f.again = f.again, false
	return f.looking
}

func (f *follower) wait() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.busy.Wait()
}
