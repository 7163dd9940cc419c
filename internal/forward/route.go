package forward

import (
	"cmp"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/task"
)

const (
	defaultWindow         = 2000
	defaultConfirmTimeout = 30 * time.Second
)

// Route says where a topic's messages go.
type Route struct {
	// Exchange must exist unless Declare is given. Empty is RabbitMQ's default
	// exchange, where the routing key names a queue.
	Exchange   string
	RoutingKey string
	// Declare makes the exchange, a queue and their binding. Defaults to
	// making nothing: the exchange is checked for.
	Declare *Declare
	// Lean messages lack the headers and properties that a consumer can do without
	// or read from others. Defaults to all of them.
	Lean bool
	// IntakeHeaders adds duefleet's headers to messages that came through an intake.
	// Defaults to delivering those as they were published.
	IntakeHeaders bool
	// Window is the most messages without a confirm. Each place costs some
	// 330 bytes while the topic is served. Defaults to 2000.
	Window int
	// ConfirmTimeout is how long a confirm may take after the message was
	// written; a message's own Deadline may be earlier. Defaults to 30s.
	ConfirmTimeout time.Duration
}

// Declare names what to make before publishing, all of it durable. It is an error if
// something exists with other properties. An earlier binding stays.
type Declare struct {
	// Type of the exchange. Defaults to direct.
	Type string
	// Queue to make and to bind with the routing key. Defaults to none.
	Queue string
	// QueueType is its x-queue-type, as in classic or quorum. Defaults to the
	// vhost's.
	QueueType string
	// DeadLetter names a fanout exchange, and a queue of the type QueueType behind it, to
	// make for what consumers reject and what expires in Queue. A queue that exists without
	// it is an error. Defaults to none.
	DeadLetter string
}

func (r Route) withDefaults() Route {
	if r.Window <= 0 {
		r.Window = defaultWindow
	}
	r.ConfirmTimeout = cmp.Or(r.ConfirmTimeout, defaultConfirmTimeout)
	if r.Declare != nil {
		d := *r.Declare
		if d.Type == "" {
			d.Type = amqp.ExchangeDirect
		}
		r.Declare = &d
	}
	return r
}

// samePlaces reports whether what was declared or checked for r serves other too.
func (r Route) samePlaces(other Route) bool {
	if r.Exchange != other.Exchange || (r.Declare == nil) != (other.Declare == nil) {
		return false
	}
	return r.Declare == nil || *r.Declare == *other.Declare && r.RoutingKey == other.RoutingKey
}

// keyOf returns the routing key of a task's message.
func (r Route) keyOf(t *task.Task) string {
	if t.AMQP != nil {
		return t.AMQP.RoutingKey
	}
	return cmp.Or(t.Options.RoutingKey, r.RoutingKey)
}

// check rejects what the library can't write: it would end the connection.
func (r Route) check() error {
	names := map[string]string{"exchange": r.Exchange, "routing_key": r.RoutingKey}
	if r.Declare != nil {
		names["declare.type"], names["declare.queue"] = r.Declare.Type, r.Declare.Queue
		names["declare.dead_letter"] = r.Declare.DeadLetter
	}
	for field, name := range names {
		if len(name) > maxShortString {
			return fmt.Errorf("%s must be at most %d bytes; got %d", field, maxShortString, len(name))
		}
	}
	return nil
}

// prepare makes or checks what the route needs. On an error the broker has closed the
// channel, or the caller must.
func (r Route) prepare(channel *amqp.Channel) error {
	if r.Declare != nil {
		return r.declare(channel)
	}
	if r.Exchange == "" {
		return nil
	}
	if err := channel.ExchangeDeclarePassive(r.Exchange, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return fmt.Errorf("check exchange %q: %w", r.Exchange, amqpconn.Brief(err))
	}
	return nil
}

// needsPlugin reports whether the exchange's type is none of AMQP's own.
func (r Route) needsPlugin() bool {
	if r.Declare == nil || r.Exchange == "" {
		return false
	}
	switch r.Declare.Type {
	case amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeTopic, amqp.ExchangeHeaders:
		return false
	}
	return true
}

func (r Route) declareExchange(channel *amqp.Channel) error {
	if r.Exchange == "" {
		return nil
	}
	if err := channel.ExchangeDeclare(r.Exchange, r.Declare.Type, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w", r.Exchange, amqpconn.Brief(err))
	}
	return nil
}

func (r Route) declare(channel *amqp.Channel) error {
	d := r.Declare
	if err := r.declareExchange(channel); err != nil {
		return err
	}
	if d.Queue == "" {
		return nil
	}
	if err := d.declareDeadLetter(channel); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(d.Queue, true, false, false, false, d.arguments()); err != nil {
		return fmt.Errorf("declare queue %q: %w%s", d.Queue, amqpconn.Brief(err), d.deadLetterAdvice(err))
	}
	if r.Exchange == "" {
		return nil
	}
	if err := channel.QueueBind(d.Queue, r.RoutingKey, r.Exchange, false, nil); err != nil {
		return fmt.Errorf("bind queue %q to exchange %q: %w", d.Queue, r.Exchange, amqpconn.Brief(err))
	}
	return nil
}
