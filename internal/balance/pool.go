package balance

import (
	"context"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/wake"
)

// Pool runs the workers of one topic in one scanner. All fields are required.
type Pool struct {
	// Wanted returns how many workers should run now.
	Wanted func() int
	// Changed returns a channel that is closed when Wanted may have changed.
	Changed func() <-chan struct{}
	// Work runs one worker; numbers begin at 0. It returns when ctx ends, or when number
	// is no longer below Wanted.
	Work func(ctx context.Context, number int)
}

// scaleInterval is how often a pool with workers calls Wanted, even if Changed reports
// nothing. The result also depends on the number of living scanners.
const scaleInterval = 250 * time.Millisecond

// Run keeps the wanted number of workers running until ctx ends and all of them have
// returned. A worker that returns is started again if its number is wanted. It may have been
// about to end when the number rose.
func (p Pool) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	returned := wake.NewSignal()
	ended := map[int]chan struct{}{} // by worker: closed when it has returned
	for ctx.Err() == nil {
		changed := p.Changed()
		var again <-chan time.Time
		if wanted := p.Wanted(); wanted > 0 {
			p.scale(ctx, wanted, ended, &workers, returned)
			again = time.After(scaleInterval)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-returned:
		case <-changed:
		}
	}
}

// scale starts the wanted workers that don't run. Workers that are no longer wanted
// return by themselves.
func (p Pool) scale(ctx context.Context, wanted int, ended map[int]chan struct{}, workers *sync.WaitGroup,
	returned wake.Signal) {
	for number := range wanted {
		if before := ended[number]; before != nil {
			select {
			case <-before:
			default:
				continue
			}
		}
		done := make(chan struct{})
		ended[number] = done
		workers.Go(func() {
			defer returned.Send()
			defer close(done)
			p.Work(ctx, number)
		})
	}
}
