package wake

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestEachChangeIsFollowed, also one that comes while the last one is looked at, or while the chore
// is done. A chore is done once at a time.
func TestEachChangeIsFollowed(t *testing.T) {
	t.Parallel()
	var b Broadcast
	var wanted, done, busy atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	defer end()
	wanted.Store(1)
	never := &Chore{Wanted: func() bool { return false }, Do: func(context.Context) { t.Error("done, and not wanted") }}
	wait := b.Follow(ctx, never, &Chore{
		Wanted: func() bool { return wanted.Load() > done.Load() },
		Do: func(context.Context) {
			if busy.Add(1) > 1 {
				t.Error("done twice at a time")
			}
			done.Store(wanted.Load())
			busy.Add(-1)
		},
	})
	check.Until(t, "what is wanted at first", func() bool { return done.Load() == 1 })
	for n := int64(2); n < 5000; n++ {
		wanted.Store(n)
		b.Fire()
		if n%500 == 0 {
			check.Until(t, "the change to be followed", func() bool { return done.Load() == n })
		}
	}
	check.Until(t, "the last change to be followed", func() bool { return done.Load() == 4999 })
	end()
	wait()
	wanted.Add(1)
	b.Fire()
	wait()
	check.Equal(t, "chores after the end", done.Load(), int64(4999))
}

// TestTheEndWaitsForChores that are under way.
func TestTheEndWaitsForChores(t *testing.T) {
	t.Parallel()
	var b Broadcast
	ctx, end := context.WithCancel(t.Context())
	begun, let := make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	wait := b.Follow(ctx, &Chore{Wanted: func() bool { return !over.Load() }, Do: func(context.Context) {
		close(begun)
		<-let
		over.Store(true)
	}})
	check.Closed(t, "the chore's beginning", begun)
	end()
	go func() { close(let) }()
	wait()
	check.Equal(t, "over", over.Load(), true)
}
