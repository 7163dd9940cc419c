package forward

import (
	"hash/maphash"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// settle takes out the messages the broker has answered for, oldest first, and
// appends their Results. It looks at all that lag, and ahead of them until
// lookAhead in a row have no answer, or with all set to the end. alive reports whether the channel still was open after
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
func (c *confirms) settle(returns <-chan amqp.Return, alive func() bool, all bool, out []Result) (results []Result, stalled bool) {
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
		c.proven, c.heard = true, now
	}
	c.trimLocked()
	c.offerLocked()
	return out, false
}

// lookAhead is after how many unanswered messages in a row settle looks no
// further: brokers answer nearly in order, and a window is large.
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

// result of a message that the broker confirmed.
func (u *unconfirmed) result(now time.Duration) Result {
	r := Result{Message: u.message, Outcome: Confirmed, Reason: u.reason, Elapsed: now - u.at}
	switch u.told {
	case returned:
		r.Outcome = Returned
	case doubtful:
		r.Outcome = Unknown
	}
	return r
}

// drainLocked notes all returns that have come. It is false if one fits no
// message in flight: then nothing that is in flight can be trusted.
func (c *confirms) drainLocked(returns <-chan amqp.Return) bool {
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				return true
			}
			if !c.noteLocked(&r) {
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
func (c *confirms) noteLocked(r *amqp.Return) bool {
	same := c.findLocked(r, true)
	if len(same) == 0 {
		same = c.findLocked(r, false)
	}
	is := returned
	if len(same) > 1 {
		is = doubtful
	}
	for _, u := range same {
		u.told = is
		u.reason = returnReason(r)
	}
	return len(same) > 0
}

func (c *confirms) findLocked(r *amqp.Return, version bool) []*unconfirmed {
	var found []*unconfirmed
	hash := maphash.String(c.seed, r.MessageId)
	for seq := c.head; seq != c.tail; seq++ {
		u := c.slot(seq)
		if u.message == nil || u.idHash != hash || u.told == returned || u.message.Task.ID != r.MessageId {
			continue
		}
		if !version || sameVersion(r, &u.message.Task) {
			found = append(found, u)
		}
	}
	return found
}

// note takes a return that came before its confirm; false as in drainLocked.
func (c *confirms) note(r *amqp.Return) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noteLocked(r)
}

// overdue reports whether a message's deadline has passed, and whether the broker has
// been silent since one of those was written: then it may be the channel or the
// connection that gets no answers.
func (c *confirms) overdue() (late, silent bool) {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed == 0 || now < c.earliest {
		return false, false
	}
	c.earliest = math.MaxInt64
	for seq := c.head; seq != c.tail; seq++ {
		u := c.slot(seq)
		if u.message == nil || u.givenUp {
			continue
		}
		c.earliest = min(c.earliest, u.deadline)
		if u.deadline <= now {
			late, silent = true, silent || c.heard < u.at
		}
	}
	return late, silent
}

// expire gives up the messages whose deadline has passed and appends their Results.
func (c *confirms) expire(out []Result) []Result {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq := c.head; seq != c.tail; seq++ {
		u := c.slot(seq)
		if u.message == nil || u.givenUp || u.deadline > now {
			continue
		}
		out = append(out, Result{Message: u.message, Outcome: Overdue, Reason: "the broker's confirm is overdue", Elapsed: now - u.at})
		// The place is kept for long, perhaps; the payload is not to be.
		kept := &Message{Task: u.message.Task}
		kept.Task.Payload = nil
		u.message, u.givenUp = kept, true
		c.owed--
		c.givenUp++
	}
	return out
}

// abandon ends it all: what came back is Returned, what the broker confirmed is
// Confirmed, the rest Unknown. Without trust in what the library told, as in
// settle, confirmed messages are Unknown too.
func (c *confirms) abandon(returns <-chan amqp.Return, reason string, trust bool, out []Result) []Result {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.reason = dead, reason
	c.findAnsweredLocked(now, true) // before the returns are read, as in settle
	trust = c.drainLocked(returns) && trust
	for _, seq := range c.found {
		if u := c.slot(seq); trust && u.told == undecided && u.confirm.Acked() {
			if !u.givenUp {
				out = append(out, u.result(now))
			}
			c.freeLocked(u)
		}
	}
	for ; c.head != c.tail; c.head++ {
		u := c.slot(c.head)
		if u.message == nil {
			continue
		}
		if !u.givenUp {
			result := u.result(now)
			if result.Outcome != Returned {
				result.Outcome, result.Reason = Unknown, reason
			}
			out = append(out, result)
		}
		c.freeLocked(u)
	}
	notify(c.room)
	return out
}
