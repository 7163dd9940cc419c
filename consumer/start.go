package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// starting judges the errors of a consumer that has not consumed yet.
type starting struct {
	c       *Consumer
	began   time.Time
	over    bool  // it has consumed
	tries   int   // of its URLs
	refusal error // that of a URL whose server refuses for good
	dropped int   // how often a server dropped the connection after the password
}

// droppedTries is how often a server must drop the connection once it has the password
// before that is taken for wrong: RabbitMQ refuses one without a word, unless a client
// asks for words as amqp091 can't, and a server that stops does the same once.
const droppedTries = 3

// failed returns the error of Run, once waiting longer is in vain; nil: try again. A
// refusal counts once all URLs were tried: one of them may be right.
func (s *starting) failed(err error) error {
	if s.over {
		return nil
	}
	s.tries++
	dropped := errors.Is(err, amqp.ErrCredentials)
	if dropped {
		s.dropped++
	}
	if refused(err) || dropped && s.dropped >= droppedTries {
		s.refusal = err
	}
	cfg := &s.c.cfg
	switch {
	case s.refusal != nil && s.tries >= len(cfg.URLs):
		return fmt.Errorf("consumer: rabbitmq refuses the consumer: %w; Config.URLs must name a user, its password and a vhost that it may use, and the user needs the right to read queue %s", s.refusal, cfg.Queue)
	case missing(err) && cfg.QueueTimeout >= 0 && time.Since(s.began) >= cfg.QueueTimeout:
		return fmt.Errorf("consumer: no queue %s after %s: %w; make it, set declare.queue of its topic, or mend Config.Queue or the vhost of Config.URLs", cfg.Queue, cfg.QueueTimeout, err)
	}
	return nil
}

// passing returns what RabbitMQ refuses for a while only, in its words.
func passing() []string { return []string{"in exclusive use", "limit", "is down"} }

// refused reports whether RabbitMQ refuses what it knows: the user, the password, the
// vhost, or a right. amqp091 puts ErrCredentials and ErrVhost in the place of a
// connection that was lost without such an answer.
func refused(err error) bool {
	var answer *amqp.Error
	if !errors.As(err, &answer) || errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) {
		return false
	}
	passes := slices.ContainsFunc(passing(), func(words string) bool { return strings.Contains(answer.Reason, words) })
	return !passes && (answer.Code == amqp.AccessRefused || answer.Code == amqp.NotAllowed)
}

// missing reports whether there is no such queue. One whose node is down has the same
// code.
func missing(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer.Code == amqp.NotFound && strings.Contains(answer.Reason, "no queue")
}
