package consumer

import (
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// acks answers the deliveries of one session. What ends while an ack is being
// written is acked with the next one, and a run of deliveries that has no gap as a
// whole (AMQP 0-9-1, basic.ack, multiple): a write for each costs more than a
// quick handler.
type acks struct {
	channel *amqp.Channel

	mu       sync.Mutex
	sending  bool
	waiting  []uint64 // tags to ack that nobody has begun to send
	answered spans
}

// ack acks a delivery, or leaves it to the caller that is sending already.
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

// send acks what waits. It lets go of the lock while it writes.
func (a *acks) send() error {
	tags := a.waiting
	a.waiting = nil
	for _, tag := range tags {
		a.answered.add(tag)
	}
	whole := a.answered.first()
	a.mu.Unlock()
	defer a.mu.Lock()
	run := uint64(0) // the last tag before the first gap that is still to be acked
	for _, tag := range tags {
		if tag <= whole {
			run = max(run, tag)
			continue
		}
		if err := a.channel.Ack(tag, false); err != nil {
			return err
		}
	}
	if run == 0 {
		return nil
	}
	return a.channel.Ack(run, true)
}

// nack gives a delivery back, to be delivered again, or dead-lettered.
func (a *acks) nack(tag uint64, requeue bool) error {
	if err := a.channel.Nack(tag, false, requeue); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered.add(tag) // after it was sent: no ack of a run may come before it
	return nil
}

// spans is a set of delivery tags, which count from 1: the runs without a gap, in
// order. There are at most as many as deliveries without an answer, and one.
type spans []span

type span struct{ from, to uint64 } // both in it

// add puts one tag into the set.
func (s *spans) add(tag uint64) {
	i, there := slices.BinarySearchFunc(*s, tag, func(s span, tag uint64) int {
		switch {
		case s.to+1 < tag:
			return -1
		case s.from > tag:
			return 1
		}
		return 0 // in it, or just behind it
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

// first is up to which tag there is no gap.
func (s spans) first() uint64 {
	if len(s) == 0 || s[0].from != 1 {
		return 0
	}
	return s[0].to
}
