package forward

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

// The arguments of a queue with a dead-letter exchange
// (https://www.rabbitmq.com/docs/dlx, https://www.rabbitmq.com/docs/quorum-queues).
const (
	argDeadLetter  = "x-dead-letter-exchange"
	argStrategy    = "x-dead-letter-strategy"
	argOverflow    = "x-overflow"
	atLeastOnce    = "at-least-once"
	rejectPublish  = "reject-publish"
	queueTypeValue = "quorum"
)

// declareDeadLetter makes the dead-letter exchange and the queue behind it. It comes before
// the queue itself: where that is refused, a policy can name what is there.
func (d *Declare) declareDeadLetter(channel *amqp.Channel) error {
	if d.DeadLetter == "" {
		return nil
	}
	if err := channel.ExchangeDeclare(d.DeadLetter, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare dead-letter exchange %q: %w", d.DeadLetter, amqpconn.Brief(err))
	}
	if _, err := channel.QueueDeclare(d.DeadLetter, true, false, false, false, d.typeArgument()); err != nil {
		return fmt.Errorf("declare dead-letter queue %q: %w", d.DeadLetter, amqpconn.Brief(err))
	}
	return bindDeadLetter(channel, d.DeadLetter)
}

// bindDeadLetter binds a queue to the dead-letter exchange of the same name.
func bindDeadLetter(channel *amqp.Channel, name string) error {
	if err := channel.QueueBind(name, "", name, false, nil); err != nil {
		return fmt.Errorf("bind dead-letter queue %q: %w", name, amqpconn.Brief(err))
	}
	return nil
}

func (d *Declare) typeArgument() amqp.Table {
	if d.QueueType == "" {
		return nil
	}
	return amqp.Table{amqp.QueueTypeArg: d.QueueType}
}

// arguments returns the arguments of the queue. docs/adr/0020 says why a quorum queue has
// three for its dead letters.
func (d *Declare) arguments() amqp.Table {
	args := d.typeArgument()
	if d.DeadLetter == "" {
		return args
	}
	if args == nil {
		args = amqp.Table{}
	}
	args[argDeadLetter] = d.DeadLetter
	if d.QueueType == queueTypeValue {
		args[argStrategy], args[argOverflow] = atLeastOnce, rejectPublish
	}
	return args
}

// deadLetterAdvice returns advice for a queue that RabbitMQ refused because of its
// dead-letter exchange, to append to the error. It returns "" for other refusals. A queue
// keeps the arguments that it was made with.
func (d *Declare) deadLetterAdvice(err error) string {
	var refusal *amqp.Error
	if !errors.As(err, &refusal) || refusal.Code != amqp.PreconditionFailed {
		return ""
	}
	about := false
	for _, arg := range []string{argDeadLetter, argStrategy, argOverflow} {
		about = about || strings.Contains(refusal.Reason, "'"+arg+"'")
	}
	switch {
	case !about:
		return ""
	case d.DeadLetter == "":
		return "; the queue was made with a dead-letter exchange: set declare.dead_letter to it"
	}
	return fmt.Sprintf("; the queue was made without dead-letter exchange %[1]s, and a queue keeps its arguments. "+
		"Leave declare.dead_letter empty and run rabbitmqctl set_policy -p VHOST dead-letters-of-%[2]s '^%[3]s$' '%[4]s' "+
		"--apply-to queues (exchange and queue %[1]s are there by now). Or set declare.queue to another name",
		d.DeadLetter, d.Queue, regexp.QuoteMeta(d.Queue), d.policy())
}

// policy returns the arguments for dead letters as a policy.
func (d *Declare) policy() string {
	more := ""
	if d.QueueType == queueTypeValue {
		more = fmt.Sprintf(`,"dead-letter-strategy":"%s","overflow":"%s"`, atLeastOnce, rejectPublish)
	}
	return fmt.Sprintf(`{"dead-letter-exchange":"%s"%s}`, d.DeadLetter, more)
}
