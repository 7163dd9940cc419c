package forward

import (
	"hash/maphash"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

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
	switch u.told {
	case returned:
		r.Outcome = Returned
	case doubtful:
		r.Outcome = Unknown
	}
	return r
}

// drainLocked records all returns that have come. It returns false if one matches no
// message in flight: then no answer on this channel can be trusted.
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

// noteLocked marks the message that came back. A rescheduled task can be in flight twice;
// its versions differ in their headers. If they don't, nobody can tell which one came
// back, and all of them become doubtful.
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

// note records a return that came before its confirm. It returns false as drainLocked
// does.
func (c *confirms) note(r *amqp.Return) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noteLocked(r)
}

// overdue reports whether a message's deadline has passed. silent is true if the broker
// has answered nothing since one of them was written. Then the channel or the whole
// connection may get no answers.
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
		out = append(out, Result{Message: u.message, Outcome: Overdue, Reason: "the broker's confirm is overdue",
			Elapsed: now - u.at})
		// The slot may be kept for long; free the payload.
		kept := &Message{Task: u.message.Task}
		kept.Task.Payload = nil
		u.message, u.givenUp = kept, true
		c.owed--
		c.givenUp++
	}
	return out
}

// abandon ends all messages: those that came back are Returned, those that the broker
// confirmed are Confirmed, the rest Unknown. Without trust in the library's reports, as
// in settle, confirmed messages are Unknown too.
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
	c.room.Send()
	return out
}
