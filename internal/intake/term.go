package intake

import (
	"context"
	"errors"
	"fmt"
)

var errUnanswered = errors.New("RabbitMQ ended the channel")

// takeOver begins the session's term before its first call that stores something. Then it
// waits for RabbitMQ's answer on the channel: it says that the session had its queue when
// the term began. So each session that gets the queue later has a later term, and one that
// lost the queue before never uses a term.
func (s *session) takeOver(ctx context.Context) error {
	if s.tasks != nil {
		return nil
	}
	tasks, err := s.in.cfg.Tasks.BeginTerm(ctx)
	if err != nil {
		return err
	}
	if err := s.ping(ctx); err != nil {
		return err
	}
	s.tasks = tasks
	return nil
}

// ping asks RabbitMQ for an answer on the channel. The error says why none came.
func (s *session) ping(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() { answered <- s.channel.Qos(s.prefetch, 0, false) }() // changes nothing
	select {
	case err := <-answered:
		return err
	case <-s.over:
		return errUnanswered
	case <-ctx.Done():
		return ctx.Err()
	}
}

// superseded returns why the session is over after another one took the queue over. If
// this session still has it too, RabbitMQ gives the messages to both.
func (s *session) superseded(ctx context.Context, err error) error {
	if s.ping(ctx) != nil {
		return err
	}
	return fmt.Errorf("%w, and RabbitMQ sends messages to both: the queue has no x-single-active-consumer, or its "+
		"nodes lost each other", err)
}
