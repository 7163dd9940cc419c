package forward

import (
	"hash/maphash"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

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
	for _, seq := range f.found {
		if fl := f.slot(seq); trust && fl.fate == undecided && fl.confirm.Acked() {
			if !fl.givenUp {
				out = append(out, fl.result(now))
			}
			f.freeLocked(fl)
		}
	}
	for ; f.head != f.tail; f.head++ {
		fl := f.slot(f.head)
		if fl.message == nil {
			continue
		}
		if !fl.givenUp {
			result := fl.result(now)
			if result.Outcome != Returned {
				result.Outcome, result.Reason = Unknown, reason
			}
			out = append(out, result)
		}
		f.freeLocked(fl)
	}
	notify(f.room)
	return out
}
