package wake

import "sync"

// Pool runs functions in goroutines that it keeps for later ones. A new goroutine's stack is
// small, and Go copies it each time that it grows. A call to Redis makes it grow three times.
type Pool struct {
	work   chan func()
	spare  chan struct{} // has an entry for each goroutine that waits for work
	closed chan struct{}
	all    sync.WaitGroup
}

// NewPool returns a pool that keeps as many goroutines as spare says. Close it after use.
func NewPool(spare int) *Pool {
	return &Pool{work: make(chan func()), spare: make(chan struct{}, spare), closed: make(chan struct{})}
}

// Go runs a function, and doesn't wait for it.
func (p *Pool) Go(f func()) {
	select {
	case p.work <- f:
	default:
		p.all.Go(func() { p.run(f) })
	}
}

// run runs a function, and then others, until enough goroutines wait for work.
func (p *Pool) run(f func()) {
	for {
		f()
		select {
		case p.spare <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-p.work:
			<-p.spare
		case <-p.closed:
			return
		}
	}
}

// Close ends the spare goroutines, and waits for all functions. Go must not be called any more.
func (p *Pool) Close() {
	close(p.closed)
	p.all.Wait()
}
