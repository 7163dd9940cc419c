package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/shard"
)

var errUnanswered = errors.New("RabbitMQ ended the channel")

// tenure is the time from which a consumer has the queue. RabbitMQ doesn't tell it. But before the
// first message came, the consumer knew a term that was the latest. If that still is the latest, no
// session that got the queue later has stored anything.
type tenure struct {
	topic *shard.Topic

	mu      sync.Mutex
	latest  shard.Term
	begun   bool   // a message came
	unasked func() // ends a look that waits for an answer; nil without one
}

// begin is called before the consumer is there.
func (t *tenure) begin(ctx context.Context) (err error) {
	t.latest, _, err = t.topic.LatestTerm(ctx)
	return err
}

// received is called for each message, in RabbitMQ's order of messages and answers.
func (t *tenure) received() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun = true; t.unasked != nil {
		t.unasked()
	}
}

// before returns the latest term at a time before the first message.
func (t *tenure) before() shard.Term {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// look reads the latest term again if no message has come until RabbitMQ answers a ping after that. So
// a consumer that gets the queue later knows the terms of those that had it meanwhile. The first
// message ends the wait for the answer: that may be behind messages which wait for room.
func (t *tenure) look(ctx context.Context, ping func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	begun := t.begun
	t.unasked = cancel
	t.mu.Unlock()
	if begun {
		return
	}
	latest, _, err := t.topic.LatestTerm(ctx)
	if err != nil || ping(ctx) != nil {
		return // the first call that needs them says why
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		t.latest = latest
	}
}

// takeOver begins the session's term before its first call that stores something. So each session
// that gets the queue later has a later term. One that lost the queue to another session, which
// stored something, gets none.
func (s *session) takeOver(ctx context.Context) (err error) {
	if s.tasks != nil {
		return nil
	}
	s.tasks, err = s.in.cfg.Tasks.BeginTerm(ctx, s.tenure.before())
	return err
}

// ping asks RabbitMQ for an answer on the session's channel. The error says why none came.
func (s *session) ping(ctx context.Context) error { return ping(ctx, s.channel, s.over) }

// ping asks RabbitMQ for an answer on a channel, until over is closed.
func ping(ctx context.Context, channel *amqp.Channel, over <-chan struct{}) error {
	answered := make(chan error, 1)
	go func() { answered <- channel.Qos(unacked, 0, false) }() // changes nothing
	select {
	case err := <-answered:
		return err
	case <-over:
		return errUnanswered
	case <-ctx.Done():
		return ctx.Err()
	}
}

// superseded returns why the session is over after another one took the queue over. If
// this session still has it too, RabbitMQ gives the messages to both.
func (s *session) superseded(ctx context.Context, err error) error {
	s.shutOut() // or messages that wait for room would hold the answer up
	if s.ping(ctx) != nil {
		return err
	}
	return fmt.Errorf("%w, and RabbitMQ sends messages to both: the queue has no x-single-active-consumer, or its "+
		"nodes lost each other", err)
}
