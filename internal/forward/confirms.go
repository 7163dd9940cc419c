package forward

import (
	"hash/maphash"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/wake"
)

// unconfirmed is one message. Times count from the start of its confirms.
type unconfirmed struct {
	message  *Message                   // nil: the slot is free
	confirm  *amqp.DeferredConfirmation // nil until the message is written
	idHash   uint64
	at       time.Duration
	deadline time.Duration
	returned returnState
	givenUp  bool // it has its Result, but the broker may still answer
	reason   string
}

// returnState says whether the broker has returned a message, before its confirm.
type returnState uint8

const (
	notReturned returnState = iota
	returned
	// maybeReturned: this message or another of the same version was returned.
	maybeReturned
)

// phase of a channel's in-flight messages.
type phase uint8

const (
	serving  phase = iota
	retiring       // takes no more, settles what it has
	dead           // all is settled
)

// verdict is the answer to a message that asks for a slot.
type verdict uint8

const (
	placed verdict = iota
	full           // the window has no room
	closed         // takes no more
	late           // the message's deadline has passed
)

// confirms holds the unconfirmed messages of one channel in the order of writing. It
// decides the one Result of each message. Code that takes a message out or gives it up,
// under the mutex, must deliver its Result.
//
// The broker may answer in any order, and never for some messages. A message is given up
// when its deadline passes. It keeps its slot until the answer comes or the channel ends,
// so that a late return can be matched to it. A slot that becomes free between others
// stays unused until it is the oldest or until room is needed.
type confirms struct {
	start time.Time
	seed  maphash.Seed
	user  string        // of the connection; see asItWas. Set before the first message.
	stall time.Duration // after a longer gap between checks, returns may have been dropped.
	wake  wake.Signal   // wakes the channel's loop: there is something to wait for.
	room  wake.Signal   // wakes the publishing goroutine: there is room.

	mu            sync.Mutex
	ring          []unconfirmed
	head          uint64 // the oldest.
	tail          uint64 // the next to be placed.
	owed          int    // messages that have no Result.
	givenUp       int    // messages that have a Result but no answer.
	limit         int    // the window: bounds owed plus givenUp; at most len(ring).
	needed        int    // messages that wait for a slot; 0 if none do.
	phase         phase
	reason        string // why it is dead.
	idle          bool   // the loop waits for nothing.
	looked        time.Duration
	earliest      time.Duration // no deadline is before this.
	heard         time.Duration // when the broker last answered.
	confirmedOnce bool          // the broker has answered for a message.
	found         []uint64      // used by settle, kept for its memory.
}

func newConfirms(window int, stall time.Duration) *confirms {
	return &confirms{
		start: time.Now(),
		seed:  maphash.MakeSeed(),
		stall: stall,
		wake:  wake.NewSignal(),
		room:  wake.NewSignal(),
		ring:  make([]unconfirmed, window),
		limit: window,
	}
}

func (c *confirms) since(t time.Time) time.Duration { return t.Sub(c.start) }

func (c *confirms) slot(seq uint64) *unconfirmed { return &c.ring[seq%uint64(len(c.ring))] }

// usedLocked returns how many messages count against the window.
func (c *confirms) usedLocked() int { return c.owed + c.givenUp }

// place gives a message a slot before it is written. The message must be confirmed within
// timeout or by its own deadline, whichever is earlier. want is how many messages the
// caller still has, so that a full window is refilled in groups, not one by one.
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
	*c.slot(seq) = unconfirmed{message: m, idHash: idHash(c.seed, &m.Task), at: at, deadline: until}
	c.tail++
	c.owed++
	return seq, placed
}

// compactLocked moves the messages together at the tail, over free slots between them.
// That changes their numbers. It is safe because only the message being written is known
// by its number, and place doesn't run while one is being written.
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

// freeLocked empties a slot.
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

// written stores the confirmation of a message that was placed, unless the channel was
// abandoned meanwhile.
func (c *confirms) written(seq uint64, confirm *amqp.DeferredConfirmation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq < c.head {
		return
	}
	c.slot(seq).confirm = confirm
	if c.idle {
		c.idle = false
		c.wake.Send()
	}
}

// next returns what the loop waits for: the confirm of the oldest message that doesn't
// lag. If all lag, it is the oldest message's; if confirm is nil, wake fires instead.
// busy is true while any message has no Result. over is true if there is none and the
// channel is retiring.
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

// lags reports whether the message has been unconfirmed for longer than sweepInterval.
func (u *unconfirmed) lags(now time.Duration) bool { return now-u.at > sweepInterval }

// serving reports whether messages are accepted, and why not.
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

// offerLocked wakes the publishing goroutine once there is room for what it needs or for
// a quarter of the window, whichever is less.
func (c *confirms) offerLocked() {
	if c.needed > 0 && c.limit-c.usedLocked() >= min(c.needed, (c.limit+3)/4) {
		c.needed = 0
		c.room.Send()
	}
}

// settle takes out the messages that the broker has answered, oldest first, and appends
// their Results. It checks all messages that lag. Among the others it stops after
// lookAhead in a row without an answer, unless all is set. If this process stood still
// and the library may have dropped a return, settle settles nothing and stalled is true.
//
// alive reports whether the channel was still open after an answer. A dying channel nacks
// all its messages, in DeferredConfirmation too, so then a nack means nothing.
//
// The broker confirms a returned message as well, and that must not count as delivered.
// It sends the return first. One reader goroutine of amqp091 (Connection.reader in
// connection.go) passes on each frame before it reads the next. Channel.dispatch
// completes the send on the returns channel (notifyAll in channel.go) before it sees the
// ack and closes Done (confirms.go). So once Done is closed, every earlier return is in
// our buffer or was taken from it by this goroutine, its only reader. The order here is
// therefore: find the confirmed messages, drain the returns, then decide.
//
// notifyAll drops a return that finds no room within 5 s. The buffer has room for a
// return of every message in flight. So that happens only if the process stands still
// between the start of that timer and the send.
func (c *confirms) settle(returns <-chan amqp.Return, alive func() bool, all bool, out []Result) (results []Result,
	stalled bool) {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed > 0 && now-c.looked > c.stall {
		return out, true
	}
	c.looked = now
	c.findAnsweredLocked(now, all)
	if !c.drainLocked(returns) {
		return out, true
	}
	for _, seq := range c.found {
		u := c.slot(seq)
		result := u.result(now)
		if !u.confirm.Acked() && result.Outcome != Returned {
			if !alive() {
				break
			}
			result.Outcome, result.Reason = Refused, "the broker refused the message (basic.nack)"
		}
		if !u.givenUp {
			out = append(out, result)
		}
		c.freeLocked(u)
		c.confirmedOnce, c.heard = true, now
	}
	c.trimLocked()
	c.offerLocked()
	return out, false
}

// lookAhead is the number of unanswered messages in a row after which settle stops.
// Brokers answer nearly in order, and a window is large.
const lookAhead = 64

func (c *confirms) findAnsweredLocked(now time.Duration, all bool) {
	c.found = c.found[:0]
	unanswered := 0
	for seq := c.head; seq != c.tail && (all || unanswered < lookAhead); seq++ {
		switch u := c.slot(seq); {
		case u.message == nil:
		case answered(u.confirm):
			c.found = append(c.found, seq)
			unanswered = 0
		case !u.lags(now):
			unanswered++
		}
	}
}

func answered(confirm *amqp.DeferredConfirmation) bool {
	if confirm == nil {
		return false
	}
	select {
	case <-confirm.Done():
		return true
	default:
		return false
	}
}

// result returns the Result of a message that the broker confirmed.
func (u *unconfirmed) result(now time.Duration) Result {
	r := Result{Message: u.message, Outcome: Confirmed, Reason: u.reason, Elapsed: now - u.at}
	switch u.returned {
	case returned:
		r.Outcome = Returned
	case maybeReturned:
		r.Outcome = Unknown
	}
	return r
}
