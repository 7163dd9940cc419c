package forward

import (
	"hash/maphash"
	"math"
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

// settle takes out the messages the broker has answered for, oldest first, and
// appends their Results. It looks at all that lag, and ahead of them until
// lookAhead in a row have no answer, or with all set to the end. alive tells whether the channel still was open after
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
func (f *inflight) settle(returns <-chan amqp.Return, alive func() bool, all bool, out []Result) (results []Result, stalled bool) {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed > 0 && now-f.looked > f.stall {
		return out, true
	}
	f.looked = now
	f.findAnsweredLocked(now, all)
	if !f.drainLocked(returns) {
		return out, true
	}
	for _, seq := range f.found {
		fl := f.slot(seq)
		result := fl.result(now)
		if !fl.confirm.Acked() && result.Outcome != Returned {
			if !alive() {
				break
			}
			result.Outcome, result.Reason = Refused, "the broker refused the message (basic.nack)"
		}
		if !fl.givenUp {
			out = append(out, result)
		}
		f.freeLocked(fl)
		f.proven, f.heard = true, now
	}
	f.trimLocked()
	f.offerLocked()
	return out, false
}

// lookAhead is after how many unanswered messages in a row settle looks no
// further: brokers answer nearly in order, and a window is large.
const lookAhead = 64

func (f *inflight) findAnsweredLocked(now time.Duration, all bool) {
	f.found = f.found[:0]
	unanswered := 0
	for seq := f.head; seq != f.tail && (all || unanswered < lookAhead); seq++ {
		switch fl := f.slot(seq); {
		case fl.message == nil:
		case answered(fl.confirm):
			f.found = append(f.found, seq)
			unanswered = 0
		case !fl.lags(now):
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
		if fl.message == nil || fl.idHash != hash || fl.fate == returned || fl.message.Task.ID != r.MessageId {
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

// overdue tells whether a message's deadline has passed, and whether the broker has
// been silent since one of those was written: then it may be the channel or the
// connection that gets no answers.
func (f *inflight) overdue() (late, silent bool) {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed == 0 || now < f.earliest {
		return false, false
	}
	f.earliest = math.MaxInt64
	for seq := f.head; seq != f.tail; seq++ {
		fl := f.slot(seq)
		if fl.message == nil || fl.givenUp {
			continue
		}
		f.earliest = min(f.earliest, fl.deadline)
		if fl.deadline <= now {
			late, silent = true, silent || f.heard < fl.at
		}
	}
	return late, silent
}

// expire gives up the messages whose deadline has passed and appends their Results.
func (f *inflight) expire(out []Result) []Result {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	for seq := f.head; seq != f.tail; seq++ {
		fl := f.slot(seq)
		if fl.message == nil || fl.givenUp || fl.deadline > now {
			continue
		}
		out = append(out, Result{Message: fl.message, Outcome: Overdue, Reason: "the broker's confirm is overdue", Elapsed: now - fl.at})
		fl.givenUp = true
		f.owed--
		f.givenUp++
	}
	return out
}

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

// abandon ends it all: what came back is Returned, what the broker confirmed is
// Confirmed, the rest Unknown. Without trust in what the library told, as in
// settle, confirmed messages are Unknown too.
func (f *inflight) abandon(returns <-chan amqp.Return, reason string, trust bool, out []Result) []Result {
	now := f.since(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase, f.reason = dead, reason
	f.findAnsweredLocked(now, true) // before the returns are read, as in settle
	trust = f.drainLocked(returns) && trust
	acked := f.found
	for ; f.head != f.tail; f.head++ {
		fl := f.slot(f.head)
		certain := trust && len(acked) > 0 && acked[0] == f.head
		if len(acked) > 0 && acked[0] == f.head {
			acked = acked[1:]
		}
		if fl.message == nil {
			continue
		}
		if !fl.givenUp {
			result := fl.result(now)
			if result.Outcome != Returned && !(certain && result.Outcome == Confirmed && fl.confirm.Acked()) {
				result.Outcome, result.Reason = Unknown, reason
			}
			out = append(out, result)
		}
		f.freeLocked(fl)
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
