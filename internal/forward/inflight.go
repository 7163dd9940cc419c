package forward

import (
	"hash/maphash"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// flight is one unconfirmed message. Times count from the inflight's start.
type flight struct {
	message  *Message
	confirm  *amqp.DeferredConfirmation // nil until the message is written
	idHash   uint64
	at       time.Duration
	deadline time.Duration
	fate     fate
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
// takes a flight out, under the mutex, owes its Result.
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
	limit    int    // the window; at most len(ring)
	needed   int    // messages that wait for a place; 0 if none do
	phase    phase
	reason   string // why it is dead
	idle     bool   // the loop waits for nothing
	looked   time.Duration
	earliest time.Duration // no deadline is before this
	proven   bool          // the broker answered for a message
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

func (f *inflight) lenLocked() int { return int(f.tail - f.head) } //nolint:gosec // at most len(ring)

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
	case f.lenLocked() >= f.limit:
		f.needed = want
		return 0, full
	}
	if f.head == f.tail {
		f.looked, f.earliest = at, until
	}
	f.earliest = min(f.earliest, until)
	seq = f.tail
	*f.slot(seq) = flight{message: m, idHash: maphash.String(f.seed, m.Task.ID), at: at, deadline: until}
	f.tail++
	return seq, placed
}

// written adds the confirmation of a message that was placed, unless its
// Result was given already.
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
	f.tail = seq
	*f.slot(seq) = flight{}
	return true
}

// next is what the loop waits for: the oldest message's confirm, or wake if
// that is nil. busy is true while anything is unconfirmed; over, when the
// channel is retiring and has nothing left.
func (f *inflight) next() (confirm <-chan struct{}, busy, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == f.tail {
		f.idle = true
		return nil, false, f.phase != serving
	}
	oldest := f.slot(f.head)
	if oldest.confirm == nil {
		f.idle = true
		return nil, true, false
	}
	return oldest.confirm.Done(), true, false
}

// settle takes out the messages the broker has answered for, oldest first, and
// appends their Results. alive tells whether the channel still was open after
// the answer: a channel that dies answers no for all its messages, in
// DeferredConfirmation too. stalled is true, and nothing is settled, if this
// process stood still and a return may have been dropped.
//
// A message that was returned is confirmed as well, and must not count as
// delivered. The broker sends the return first, and amqp091's one reader
// goroutine (Connection.reader in connection.go) hands each frame on before it
// reads the next: Channel.dispatch in channel.go completes the send on the
// returns channel in notifyAll, and only then sees the ack and closes the
// confirmation's Done in confirms.go. So at the time Done is closed every
// earlier return lies in our buffer or was taken from it by this goroutine,
// the only one that does: count the confirmed first, then drain the returns,
// then decide. notifyAll drops what finds no place within 5 s; the buffer
// holds as many returns as there can be messages in flight, so that is left
// to a process that stands still between arming that timer and sending.
func (f *inflight) settle(returns <-chan amqp.Return, alive func() bool, out []Result) (results []Result, stalled bool) {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head != f.tail && now-f.looked > f.stall {
		return out, true
	}
	f.looked = now
	until := f.head
	for until != f.tail && answered(f.slot(until).confirm) {
		until++
	}
	if !f.drainLocked(returns) {
		return out, true
	}
	for ; f.head != until; f.head++ {
		fl := f.slot(f.head)
		result := fl.result(now)
		if !fl.confirm.Acked() && result.Outcome != Returned {
			if !alive() {
				break
			}
			result.Outcome, result.Reason = Refused, "the broker refused the message (basic.nack)"
		}
		out = append(out, result)
		*fl = flight{}
	}
	f.proven = f.proven || len(out) > 0
	f.offerLocked()
	return out, false
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

// result of a message that the broker confirmed.
func (fl *flight) result(now time.Duration) Result {
	r := Result{Message: fl.message, Outcome: Confirmed, Reason: fl.reason, Elapsed: now - fl.at}
	switch fl.fate {
	case returned:
		r.Outcome = Returned
	case doubtful:
		r.Outcome = Unknown
	}
	return r
}

// drainLocked notes all returns that have come. It is false if one fits no
// message in flight: then nothing that is in flight can be trusted.
func (f *inflight) drainLocked(returns <-chan amqp.Return) bool {
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				return true
			}
			if !f.noteLocked(&r) {
				return false
			}
		default:
			return true
		}
	}
}

// noteLocked marks the message that came back. A task that was rescheduled
// can be in flight twice; its versions differ in their headers. If they don't,
// nobody can tell which came back, and all of them are in doubt.
func (f *inflight) noteLocked(r *amqp.Return) bool {
	same := f.findLocked(r, true)
	if len(same) == 0 {
		same = f.findLocked(r, false)
	}
	is := returned
	if len(same) > 1 {
		is = doubtful
	}
	for _, fl := range same {
		fl.fate = is
		fl.reason = returnReason(r)
	}
	return len(same) > 0
}

func (f *inflight) findLocked(r *amqp.Return, version bool) []*flight {
	var found []*flight
	hash := maphash.String(f.seed, r.MessageId)
	for seq := f.head; seq != f.tail; seq++ {
		fl := f.slot(seq)
		if fl.idHash != hash || fl.fate == returned || fl.message.Task.ID != r.MessageId {
			continue
		}
		if !version || sameVersion(r, &fl.message.Task) {
			found = append(found, fl)
		}
	}
	return found
}

// note takes a return that came before its confirm; false as in drainLocked.
func (f *inflight) note(r *amqp.Return) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noteLocked(r)
}

// overdue is true once a message's deadline has passed.
func (f *inflight) overdue() bool {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == f.tail || now < f.earliest {
		return false
	}
	f.earliest = f.slot(f.head).deadline
	for seq := f.head; seq != f.tail; seq++ {
		f.earliest = min(f.earliest, f.slot(seq).deadline)
	}
	return now >= f.earliest
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

// abandon ends it all: what came back is Returned, the rest Unknown.
func (f *inflight) abandon(returns <-chan amqp.Return, reason string, out []Result) []Result {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase, f.reason = dead, reason
	f.drainLocked(returns)
	for ; f.head != f.tail; f.head++ {
		fl := f.slot(f.head)
		result := fl.result(now)
		if result.Outcome != Returned {
			result.Outcome, result.Reason = Unknown, reason
		}
		out = append(out, result)
		*fl = flight{}
	}
	notify(f.room)
	return out
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
	if f.needed > 0 && f.limit-f.lenLocked() >= min(f.needed, (f.limit+3)/4) {
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
