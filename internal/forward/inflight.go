package forward

import (
	"hash/maphash"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// flight is one unconfirmed message. Times count from the inflight's start.
type flight struct {
	message  *Message                   // nil: the place is free
	confirm  *amqp.DeferredConfirmation // nil until the message is written
	idHash   uint64
	at       time.Duration
	deadline time.Duration
	fate     fate
	givenUp  bool // its Result was given, and the broker may still answer
	reason   string
}

// fate is what is known of a flight before its confirm.
type fate uint8

const (
	undecided fate = iota
	returned
	// doubtful: this message or another of the same version was returned.
	doubtful
)

// phase of a channel's in-flight messages.
type phase uint8

const (
	serving  phase = iota
	retiring       // takes no more, settles what it has
	dead           // all is settled
)

// verdict on a message that asks for a place.
type verdict uint8

const (
	placed verdict = iota
	full           // of unconfirmed messages
	closed         // takes no more
	late           // the message's deadline has passed
)

// inflight holds the unconfirmed messages of one channel, in the order they
// were written. It is where exactly one Result a message is decided: whoever
// takes a flight out or gives it up, under the mutex, owes its Result.
//
// The broker may answer in any order, and for some messages never: those are given
// up one by one when their deadline passes, and keep their place until the answer
// comes or the channel goes, so that a late return is known for what it is. A
// place that became free between others stays so until it is the oldest, or is
// needed.
type inflight struct {
	start time.Time
	seed  maphash.Seed
	stall time.Duration // longer than this unlooked at, nothing can be trusted
	wake  chan struct{} // tells the channel's loop that there is something to wait for
	room  chan struct{} // tells the publishing goroutine that it may go on

	mu       sync.Mutex
	ring     []flight
	head     uint64 // oldest
	tail     uint64 // next to be placed
	owed     int    // messages that have no Result yet
	givenUp  int    // messages that have one, and no answer
	limit    int    // the window, of owed and givenUp together; at most len(ring)
	needed   int    // messages that wait for a place; 0 if none do
	phase    phase
	reason   string // why it is dead
	idle     bool   // the loop waits for nothing
	looked   time.Duration
	earliest time.Duration // no deadline is before this
	heard    time.Duration // when the broker answered last
	proven   bool          // the broker answered for a message
	found    []uint64      // of settle, kept for its memory
}

func newInflight(window int, stall time.Duration) *inflight {
	return &inflight{
		start: time.Now(),
		seed:  maphash.MakeSeed(),
		stall: stall,
		wake:  make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		ring:  make([]flight, window),
		limit: window,
	}
}

func (f *inflight) since(t time.Time) time.Duration { return t.Sub(f.start) }

func (f *inflight) slot(seq uint64) *flight { return &f.ring[seq%uint64(len(f.ring))] }

// usedLocked is how many of the window's places are taken.
func (f *inflight) usedLocked() int { return f.owed + f.givenUp }

// setLimit changes the window, to at most what the channel was opened with.
func (f *inflight) setLimit(window int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = min(window, len(f.ring))
	f.offerLocked()
}

// place takes a message in before it is written, to be confirmed within timeout
// or by its own deadline, whichever is earlier. want is how many the caller
// has yet, so that a full window is waited for in bunches, not one by one.
func (f *inflight) place(m *Message, timeout time.Duration, want int) (seq uint64, v verdict) {
	at := f.since(time.Now())
	until := at + timeout
	if !m.Deadline.IsZero() {
		until = min(until, f.since(m.Deadline))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.phase != serving:
		return 0, closed
	case until <= at:
		return 0, late
	case f.usedLocked() >= f.limit:
		f.needed = want
		return 0, full
	}
	if f.tail-f.head == uint64(len(f.ring)) {
		f.compactLocked()
	}
	if f.owed == 0 {
		f.looked, f.earliest = at, until
	}
	f.earliest = min(f.earliest, until)
	seq = f.tail
	*f.slot(seq) = flight{message: m, idHash: maphash.String(f.seed, m.Task.ID), at: at, deadline: until}
	f.tail++
	f.owed++
	return seq, placed
}

// compactLocked moves the flights together at the tail, over the places that
// became free between them. Nobody else knows their numbers: only the message that
// is being written is known by one, and none is while another is placed.
func (f *inflight) compactLocked() {
	to := f.tail
	for from := f.tail; from != f.head; {
		from--
		fl := f.slot(from)
		if fl.message == nil {
			continue
		}
		if to--; to != from {
			*f.slot(to), *fl = *fl, flight{}
		}
	}
	f.head = to
}

// freeLocked empties a flight's place.
func (f *inflight) freeLocked(fl *flight) {
	if fl.givenUp {
		f.givenUp--
	} else {
		f.owed--
	}
	*fl = flight{}
}

// trimLocked moves the head to the oldest flight.
func (f *inflight) trimLocked() {
	for f.head != f.tail && f.slot(f.head).message == nil {
		f.head++
	}
}

// written adds the confirmation of a message that was placed, unless the channel
// was abandoned meanwhile.
func (f *inflight) written(seq uint64, confirm *amqp.DeferredConfirmation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq < f.head {
		return
	}
	f.slot(seq).confirm = confirm
	if f.idle {
		f.idle = false
		notify(f.wake)
	}
}

// undo takes back the message placed last, which could not be written. It is
// false if its Result was given already.
func (f *inflight) undo(seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq < f.head {
		return false
	}
	fl := f.slot(seq)
	mine := !fl.givenUp
	f.freeLocked(fl)
	f.tail = seq
	return mine
}

// next is what the loop waits for: the confirm of the oldest message that isn't
// late yet, or of the oldest of all; wake if that is nil. busy is true while
// anything is owed; over, when the channel is retiring and owes nothing.
func (f *inflight) next() (confirm <-chan struct{}, busy, over bool) {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed == 0 {
		f.idle = true
		return nil, false, f.phase != serving
	}
	var next *flight
	for seq := f.head; seq != f.tail; seq++ {
		fl := f.slot(seq)
		if fl.message == nil || fl.givenUp {
			continue
		}
		if next == nil || !fl.lags(now) {
			next = fl
		}
		if !fl.lags(now) {
			break
		}
	}
	if next.confirm == nil {
		f.idle = true
		return nil, true, false
	}
	return next.confirm.Done(), true, false
}

// lags is true of a message whose confirm takes longer than it takes to look at
// all messages anyway.
func (fl *flight) lags(now time.Duration) bool { return now-fl.at > sweepInterval }

// crowded is true when messages that were given up take half of the window.
func (f *inflight) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2*f.givenUp >= f.limit
}

// serving is false once no more messages are taken.
func (f *inflight) serving() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase == serving
}

// retire stops taking messages.
func (f *inflight) retire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase == serving {
		f.phase = retiring
	}
	notify(f.wake)
	notify(f.room)
}

// ended tells whether and why nothing more comes from here, and whether the
// broker ever answered for a message.
func (f *inflight) ended() (ended bool, reason string, proven bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase == dead, f.reason, f.proven
}

// offerLocked lets the publishing goroutine go on once there is room for what
// it needs, or a quarter of the window.
func (f *inflight) offerLocked() {
	if f.needed > 0 && f.limit-f.usedLocked() >= min(f.needed, (f.limit+3)/4) {
		f.needed = 0
		notify(f.room)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
