package forward

import (
	"hash/maphash"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// unconfirmed is one message. Times count from the start of its confirms.
type unconfirmed struct {
	message  *Message                   // nil: the place is free
	confirm  *amqp.DeferredConfirmation // nil until the message is written
	idHash   uint64
	at       time.Duration
	deadline time.Duration
	told     told
	givenUp  bool // its Result was given, and the broker may still answer
	reason   string
}

// told is what the broker has told of a message before its confirm.
type told uint8

const (
	undecided told = iota
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

// confirms holds the unconfirmed messages of one channel, in the order they
// were written. It is where exactly one Result a message is decided: whoever
// takes one out or gives it up, under the mutex, owes its Result.
//
// The broker may answer in any order, and for some messages never: those are given
// up one by one when their deadline passes, and keep their place until the answer
// comes or the channel goes, so that a late return is known for what it is. A
// place that became free between others stays so until it is the oldest, or is
// needed.
type confirms struct {
	start time.Time
	seed  maphash.Seed
	stall time.Duration // longer than this unlooked at, nothing can be trusted
	wake  chan struct{} // tells the channel's loop that there is something to wait for
	room  chan struct{} // tells the publishing goroutine that it may go on

	mu       sync.Mutex
	ring     []unconfirmed
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

func newConfirms(window int, stall time.Duration) *confirms {
	return &confirms{
		start: time.Now(),
		seed:  maphash.MakeSeed(),
		stall: stall,
		wake:  make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		ring:  make([]unconfirmed, window),
		limit: window,
	}
}

func (c *confirms) since(t time.Time) time.Duration { return t.Sub(c.start) }

func (c *confirms) slot(seq uint64) *unconfirmed { return &c.ring[seq%uint64(len(c.ring))] }

// usedLocked is how many of the window's places are taken.
func (c *confirms) usedLocked() int { return c.owed + c.givenUp }

// setLimit changes the window, to at most what the channel was opened with.
func (c *confirms) setLimit(window int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = min(window, len(c.ring))
	c.offerLocked()
}

// place takes a message in before it is written, to be confirmed within timeout
// or by its own deadline, whichever is earlier. want is how many the caller
// has yet, so that a full window is waited for in bunches, not one by one.
func (c *confirms) place(m *Message, timeout time.Duration, want int) (seq uint64, v verdict) {
	at := c.since(time.Now())
	until := at + timeout
	if !m.Deadline.IsZero() {
		until = min(until, c.since(m.Deadline))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.phase != serving:
		return 0, closed
	case until <= at:
		return 0, late
	case c.usedLocked() >= c.limit:
		c.needed = want
		return 0, full
	}
	if c.tail-c.head == uint64(len(c.ring)) {
		c.compactLocked()
	}
	if c.owed == 0 {
		c.looked, c.earliest = at, until
	}
	c.earliest = min(c.earliest, until)
	seq = c.tail
	*c.slot(seq) = unconfirmed{message: m, idHash: maphash.String(c.seed, m.Task.ID), at: at, deadline: until}
	c.tail++
	c.owed++
	return seq, placed
}

// compactLocked moves the messages together at the tail, over the places that
// became free between them. Nobody else knows their numbers: only the message that
// is being written is known by one, and none is while another is placed.
func (c *confirms) compactLocked() {
	to := c.tail
	for from := c.tail; from != c.head; {
		from--
		u := c.slot(from)
		if u.message == nil {
			continue
		}
		if to--; to != from {
			*c.slot(to), *u = *u, unconfirmed{}
		}
	}
	c.head = to
}

// freeLocked empties a place.
func (c *confirms) freeLocked(u *unconfirmed) {
	if u.givenUp {
		c.givenUp--
	} else {
		c.owed--
	}
	*u = unconfirmed{}
}

// trimLocked moves the head to the oldest message.
func (c *confirms) trimLocked() {
	for c.head != c.tail && c.slot(c.head).message == nil {
		c.head++
	}
}

// written adds the confirmation of a message that was placed, unless the channel
// was abandoned meanwhile.
func (c *confirms) written(seq uint64, confirm *amqp.DeferredConfirmation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq < c.head {
		return
	}
	c.slot(seq).confirm = confirm
	if c.idle {
		c.idle = false
		notify(c.wake)
	}
}

// undo takes back the message placed last, which could not be written. It is
// false if its Result was given already.
func (c *confirms) undo(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq < c.head {
		return false
	}
	u := c.slot(seq)
	mine := !u.givenUp
	c.freeLocked(u)
	c.tail = seq
	return mine
}

// next is what the loop waits for: the confirm of the oldest message that isn't
// late yet, or of the oldest of all; wake if that is nil. busy is true while
// anything is owed; over, when the channel is retiring and owes nothing.
func (c *confirms) next() (confirm <-chan struct{}, busy, over bool) {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed == 0 {
		c.idle = true
		return nil, false, c.phase != serving
	}
	var next *unconfirmed
	for seq := c.head; seq != c.tail; seq++ {
		u := c.slot(seq)
		if u.message == nil || u.givenUp {
			continue
		}
		if next == nil || !u.lags(now) {
			next = u
		}
		if !u.lags(now) {
			break
		}
	}
	if next.confirm == nil {
		c.idle = true
		return nil, true, false
	}
	return next.confirm.Done(), true, false
}

// lags is true of a message whose confirm takes longer than it takes to look at
// all messages anyway.
func (u *unconfirmed) lags(now time.Duration) bool { return now-u.at > sweepInterval }

// crowded is true when messages that were given up take half of the window.
func (c *confirms) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 2*c.givenUp >= c.limit
}

// serving is false once no more messages are taken, with the reason.
func (c *confirms) serving() (ok bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case serving:
		return true, ""
	case retiring:
		return false, reopening
	}
	return false, c.reason
}

// retire stops taking messages.
func (c *confirms) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == serving {
		c.phase = retiring
	}
	notify(c.wake)
	notify(c.room)
}

// ended reports whether and why nothing more comes from here, and whether the
// broker ever answered for a message.
func (c *confirms) ended() (ended bool, reason string, proven bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == dead, c.reason, c.proven
}

// offerLocked lets the publishing goroutine go on once there is room for what
// it needs, or a quarter of the window.
func (c *confirms) offerLocked() {
	if c.needed > 0 && c.limit-c.usedLocked() >= min(c.needed, (c.limit+3)/4) {
		c.needed = 0
		notify(c.room)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
