package consumer

import (
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

// acks acks the deliveries of one session. While one ack is written, later acks collect
// and go out together. An unbroken run of deliveries is acked as one (AMQP 0-9-1,
// basic.ack, multiple), because a write for each delivery costs more than a quick
// handler.
type acks struct {
	channel amqp.Acknowledger

	mu       sync.Mutex
	sending  bool
	sent     amqpconn.Acked
	waiting  []uint64 // tags whose ack isn't being sent yet
	answered spans
}

// ack acks a delivery. If another goroutine is sending, that one sends this ack too.
func (a *acks) ack(tag uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, tag)
	if a.sending {
		return nil
	}
	a.sending = true
	defer func() { a.sending = false }()
	for len(a.waiting) > 0 {
		if err := a.send(); err != nil {
			return err
		}
	}
	return nil
}

// send sends the acks that wait. It unlocks the mutex while it writes.
func (a *acks) send() error {
	tags := a.waiting
	a.waiting = nil
	for _, tag := range tags {
		a.answered.add(tag)
	}
	whole := a.answered.first()
	a.mu.Unlock()
	defer a.mu.Lock()
	run := uint64(0) // the highest tag to ack before the first gap
	for _, tag := range tags {
		if tag <= whole {
			run = max(run, tag)
			continue
		}
		if err := a.channel.Ack(tag, false); err != nil {
			return err
		}
		a.noteSent()
	}
	if run == 0 {
		return nil
	}
	defer a.noteSent()
	return a.channel.Ack(run, true)
}

func (a *acks) noteSent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent.Sent()
}

// rest returns how long to wait before the channel is closed, so that no ack is lost.
func (a *acks) rest() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent.Rest()
}

// nack returns a delivery to the broker, which delivers it again or dead-letters it.
func (a *acks) nack(tag uint64, requeue bool) error {
	if err := a.channel.Nack(tag, false, requeue); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered.add(tag) // only now: an ack of a run that includes it must come after the nack
	return nil
}

// spans is a set of delivery tags, which count from 1. It holds the runs of tags without a
// gap, in order. There is at most one run more than there are unanswered deliveries.
type spans []span

type span struct{ from, to uint64 } // both included

// add puts one tag into the set.
func (s *spans) add(tag uint64) {
	i, there := slices.BinarySearchFunc(*s, tag, func(s span, tag uint64) int {
		switch {
		case s.to+1 < tag:
			return -1
		case s.from > tag:
			return 1
		}
		return 0 // in s, or just behind it
	})
	if !there {
		*s = slices.Insert(*s, i, span{tag, tag})
	}
	(*s)[i].to = max((*s)[i].to, tag)
	if i+1 < len(*s) && (*s)[i+1].from == (*s)[i].to+1 {
		(*s)[i].to = (*s)[i+1].to
		*s = slices.Delete(*s, i+1, i+2)
	}
}

// first returns the last tag of the run that begins at 1, or 0 if there is none.
func (s spans) first() uint64 {
	if len(s) == 0 || s[0].from != 1 {
		return 0
	}
	return s[0].to
}
