package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// starting decides about errors until the consumer has consumed once.
type starting struct {
	c       *Consumer
	began   time.Time
	over    bool  // the consumer has consumed once
	tries   int   // connections tried
	refusal error // the newest refusal that doesn't end by itself
}

// failed returns the error of Run if waiting longer is useless, or nil to try again. A
// refusal counts only after all URLs were tried, because another URL may work.
func (s *starting) failed(err error) error {
	if s.over {
		return nil
	}
	s.tries++
	if refused(err) {
		s.refusal = err
	}
	cfg := &s.c.cfg
	switch {
	case s.refusal != nil && s.tries >= len(cfg.URLs):
		return fmt.Errorf("consumer: rabbitmq refuses the consumer: %w; Config.URLs must name a user, its password "+
			"and a vhost that it may use, and the user needs the right to read queue %s", s.refusal, cfg.Queue)
	case missing(err) && cfg.QueueTimeout >= 0 && time.Since(s.began) >= cfg.QueueTimeout:
		return fmt.Errorf("consumer: no queue %s after %s: %w; create it, set declare.queue of its topic, "+
			"or correct Config.Queue or the vhost of Config.URLs", cfg.Queue, cfg.QueueTimeout, err)
	}
	return nil
}

// passing returns texts of RabbitMQ for refusals that end by themselves.
func passing() []string { return []string{"in exclusive use", "limit", "is down"} }

// refused reports whether RabbitMQ refuses the user, the password, the vhost or a right.
// It ignores ErrVhost: amqp091 also returns it for a connection that was lost without an
// answer.
func refused(err error) bool {
	var answer *amqp.Error
	if !errors.As(err, &answer) || errors.Is(err, amqp.ErrVhost) {
		return false
	}
	passes := slices.ContainsFunc(passing(), func(words string) bool { return strings.Contains(answer.Reason, words) })
	return !passes && (answer.Code == amqp.AccessRefused || answer.Code == amqp.NotAllowed)
}

// missing reports whether the queue doesn't exist. A queue whose node is down has the
// same code but another text.
func missing(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer.Code == amqp.NotFound && strings.Contains(answer.Reason, "no queue")
}
