package console

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
)

const (
	// readEvery is the pause between two readings of the fleet while somebody looks.
	readEvery = 5 * time.Second
	// readEach is how much of that pause each topic needs at least. A reading costs Redis 70 to
	// 150 µs of CPU for each topic, so readings take less than 1 ms a second of its time.
	readEach = 250 * time.Millisecond
	// readTopicEvery is the pause for one topic.
	readTopicEvery = 2 * time.Second
	// readLimit limits one reading.
	readLimit = 10 * time.Second
	// pageLimit is how long a page waits for a reading. After that it shows an older one.
	pageLimit = 4 * time.Second
	// maxReaders is how many readers are kept although nobody looks.
	maxReaders = 100
	// orphansEvery is the time between two counts of a topic's orphaned tasks.
	orphansEvery = 10 * time.Minute
	// orphansIn is over how many readings the counts of all topics are spread. Each takes about
	// a millisecond, and the first page doesn't wait for all of them.
	orphansIn = 30
)

// content has the result of one reading of Redis.
type content struct {
	admin.Status
	// About has more about the topic, if the reading is of one topic.
	About topicContent
	// Parked has parked tasks, if the reading is of these.
	Parked parkedContent
}

// reading is a content that all viewers of a page share.
type reading struct {
	content
	// At is when the content was read; zero if it never was.
	At time.Time
	// Failure is why the newest attempt failed; "" if it didn't. The content is then an
	// older one.
	Failure string

	number uint64    // counts the attempts; 0 before the first
	tried  time.Time // when the newest attempt ended
	err    error     // of the newest attempt
}

// pause returns the time until the next reading: every, or longer after many topics.
func (r reading) pause(every time.Duration) time.Duration {
	return max(every, time.Duration(len(r.Topics))*readEach)
}

// reader reads for everybody who looks at the same. All methods but run are safe for
// concurrent use.
type reader struct {
	every time.Duration
	read  func(context.Context) (content, error)
	start chan<- *reader // to have run called
	again chan struct{}  // has run read at once

	mu       sync.Mutex
	running  bool
	expired  bool // while it was reading
	watchers int
	newest   reading
	next     chan struct{} // closed with the next reading
}

// run reads while somebody looks, until ctx ends.
func (r *reader) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for r.watched() {
		r.try(ctx)
		now, _ := r.latest()
		pause.Reset(now.pause(r.every))
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		case <-r.again:
		}
	}
}

// expire makes the newest reading too old for a page, and reads again if somebody looks.
func (r *reader) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest.tried, r.expired = time.Time{}, true
	select {
	case r.again <- struct{}{}:
	default: // it will read anyway
	}
}

// try reads once and tells everybody.
func (r *reader) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	r.mu.Lock()
	r.expired = false
	r.mu.Unlock()
	got, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.newest
	now.number, now.tried, now.Failure, now.err = now.number+1, time.Now(), "", err
	if err == nil {
		now.content, now.At = got, now.tried
	} else {
		now.Failure = err.Error()
	}
	if r.expired {
		now.tried = time.Time{}
	}
	r.newest = now
	close(r.next)
	r.next = make(chan struct{})
}

// watched reports whether somebody looks. If not, run ends.
func (r *reader) watched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = r.watchers > 0
	return r.running
}

// watch makes run read until stop is called.
func (r *reader) watch(ctx context.Context) (stop func()) {
	r.mu.Lock()
	r.watchers++
	begin := !r.running
	r.running = true
	r.mu.Unlock()
	if begin {
		select {
		case r.start <- r:
		case <-ctx.Done():
			r.mu.Lock()
			r.running = false
			r.mu.Unlock()
		}
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

// fresh returns a reading that is no older than the pause. If none comes within pageLimit, it
// returns an older one.
func (r *reader) fresh(ctx context.Context) reading {
	now, next := r.latest()
	if now.number > 0 && time.Since(now.tried) < now.pause(r.every) {
		return now
	}
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	defer r.watch(ctx)()
	for ctx.Err() == nil && (now.number == 0 || time.Since(now.tried) >= now.pause(r.every)) {
		select {
		case <-next:
		case <-ctx.Done():
		}
		now, next = r.latest()
	}
	if now.number == 0 {
		now.Failure = "no answer from Redis within " + pageLimit.String()
	}
	return now
}

// readers has the readers of single topics, and runs all readers.
type readers struct {
	start chan *reader

	mu   sync.Mutex
	kept map[string]*reader
}

func newReaders() *readers {
	return &readers{start: make(chan *reader), kept: map[string]*reader{}}
}

// reader returns a reader that isn't kept.
func (r *readers) reader(every time.Duration, read func(context.Context) (content, error)) *reader {
	return &reader{every: every, read: read, start: r.start, next: make(chan struct{}),
		again: make(chan struct{}, 1)}
}

// find returns the reader under a key. It makes one by read if there is none.
func (r *readers) find(key string, every time.Duration, read func(context.Context) (content, error)) *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.kept[key]; found != nil {
		return found
	}
	for old, other := range r.kept {
		if len(r.kept) >= maxReaders && !other.busy() {
			delete(r.kept, old)
		}
	}
	r.kept[key] = r.reader(every, read)
	return r.kept[key]
}

// expire expires the readings under keys that begin with prefix.
func (r *readers) expire(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, one := range r.kept {
		if strings.HasPrefix(key, prefix) {
			one.expire()
		}
	}
}

// busy reports whether run reads for somebody.
func (r *reader) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running || r.watchers > 0
}

// run runs readers while somebody looks, until ctx ends.
func (r *readers) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-r.start:
			all.Go(func() { one.run(ctx) })
		}
	}
}
