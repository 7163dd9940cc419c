package forward

import (
	"hash/maphash"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
)

// drainLocked records all returns that have come. It returns false if one matches no
// message in flight: then no answer on this channel counts.
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
// back, and all of them may have.
//
// Different tasks may have equal messages from an intake in flight. Then the oldest counts
// as the returned one. It doesn't matter which one is tried again.
func (c *confirms) noteLocked(r *amqp.Return) bool {
	id := maphash.String(c.seed, r.MessageId)
	content := contentHash(c.seed, r.MessageId, r.RoutingKey, r.Body)
	same := c.findLocked(id, func(t *task.Task) bool { return t.AMQP == nil && t.ID == r.MessageId && sameVersion(r, t) })
	if len(same) == 0 {
		first := ""
		same = c.findLocked(content, func(t *task.Task) bool {
			if t.AMQP == nil || first != "" && t.ID != first || !sameContent(r, t, c.user) {
				return false
			}
			first = t.ID
			return true
		})
	}
	if len(same) == 0 {
		same = c.findLocked(id, func(t *task.Task) bool { return t.AMQP == nil && t.ID == r.MessageId })
	}
	if len(same) == 0 { // the broker may have changed a property
		same = c.findLocked(content, func(t *task.Task) bool { return t.AMQP != nil })
	}
	state := returned
	if len(same) > 1 {
		state = maybeReturned
	}
	for _, u := range same {
		u.returned = state
		u.reason = returnReason(r)
	}
	return len(same) > 0
}

// findLocked returns the messages with an idHash that match, oldest first.
func (c *confirms) findLocked(hash uint64, match func(t *task.Task) bool) []*unconfirmed {
	var found []*unconfirmed
	for seq := c.head; seq != c.tail; seq++ {
		u := c.slot(seq)
		if u.message != nil && u.idHash == hash && u.returned != returned && match(&u.message.Task) {
			found = append(found, u)
		}
	}
	return found
}

// noteReturn records a return that came before its confirm. It returns false as drainLocked
// does.
func (c *confirms) noteReturn(r *amqp.Return) bool {
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
// confirmed are Confirmed, the rest Unknown. If the library may have dropped a return, as
// in settle, so that its reports aren't reliable, confirmed messages are Unknown too.
func (c *confirms) abandon(returns <-chan amqp.Return, reason string, reliable bool, out []Result) []Result {
	now := c.since(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.reason = dead, reason
	c.findAnsweredLocked(now, true) // before the returns are read, as in settle
	reliable = c.drainLocked(returns) && reliable
	for _, seq := range c.found {
		if u := c.slot(seq); reliable && u.returned == notReturned && u.confirm.Acked() {
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

// setLimit changes the window. It can't exceed the window that the channel was opened
// with.
func (c *confirms) setLimit(window int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = min(window, len(c.ring))
	c.offerLocked()
}

// undo takes back the message placed last, which could not be written. It returns false
// if the message has its Result already.
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

// crowded reports whether messages that were given up take half of the window.
func (c *confirms) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 2*c.givenUp >= c.limit
}

// retire stops accepting messages.
func (c *confirms) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == serving {
		c.phase = retiring
	}
	c.wake.Send()
	c.room.Send()
}

// ended reports whether the channel is dead and why, and whether the broker ever answered
// for one of its messages.
func (c *confirms) ended() (ended bool, reason string, confirmedOnce bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == dead, c.reason, c.confirmedOnce
}
