package console

import (
	"context"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
)

const (
	// readEvery is the pause between two readings while somebody looks.
	readEvery = 2 * time.Second
	// readLimit limits one reading.
	readLimit = 10 * time.Second
	// pageLimit is how long a page waits for a reading. After that it shows an older one.
	pageLimit = 4 * time.Second
)

// reading is a status of the fleet that all pages and streams share.
type reading struct {
	admin.Status
	// At is when Status was read; zero if it never was.
	At time.Time
	// Failure is why the newest attempt failed; "" if it didn't. Status is then an older one.
	Failure string

	number uint64    // counts the attempts; 0 before the first
	tried  time.Time // when the newest attempt ended
}

// reader reads the status for everybody who looks. All methods but run are safe for
// concurrent use.
type reader struct {
	read  func(context.Context) (admin.Status, error)
	asked chan struct{} // of capacity 1; tells run that somebody looks

	mu       sync.Mutex
	watchers int
	newest   reading
	next     chan struct{} // closed with the next reading
}

func newReader(read func(context.Context) (admin.Status, error)) *reader {
	return &reader{read: read, asked: make(chan struct{}, 1), next: make(chan struct{})}
}

// run reads every two seconds while somebody looks, until ctx ends.
func (r *reader) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		for r.watched() {
			r.try(ctx)
			pause.Reset(readEvery)
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		}
	}
}

// try reads once and tells everybody.
func (r *reader) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	status, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.newest
	now.number, now.tried, now.Failure = now.number+1, time.Now(), ""
	if err == nil {
		now.Status, now.At = status, now.tried
	} else {
		now.Failure = err.Error()
	}
	r.newest = now
	close(r.next)
	r.next = make(chan struct{})
}

func (r *reader) watched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watchers > 0
}

// watch makes run read until stop is called.
func (r *reader) watch() (stop func()) {
	r.mu.Lock()
	r.watchers++
	r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default: // run has not taken the last one
	}
	return func() {
		r.mu.Lock()
		r.watchers--
		r.mu.Unlock()
	}
}

// latest returns the newest reading and a channel that is closed with the next one.
func (r *reader) latest() (now reading, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest, r.next
}

// fresh returns a reading that is at most readEvery old. If none comes within pageLimit, it
// returns an older one.
func (r *reader) fresh(ctx context.Context) reading {
	now, next := r.latest()
	if now.number > 0 && time.Since(now.tried) < readEvery {
		return now
	}
	defer r.watch()()
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	select {
	case <-next:
	case <-ctx.Done():
	}
	now, _ = r.latest()
	if now.number == 0 {
		now.Failure = "no answer from Redis within " + pageLimit.String()
	}
	return now
}
