package doctor

import (
	"errors"
	"regexp"

	amqp "github.com/rabbitmq/amqp091-go"
)

// difference is a property or argument in which an exchange or a queue differs from a
// declaration of it.
type difference struct {
	name string
	// has is the text of RabbitMQ for its value, as in "none", "'false'" or "the value '20'
	// of type 'long'".
	has string
}

var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for .*: received .* but current is (.+)$`)

// differenceIn reads RabbitMQ's refusal of a declaration. ok is false if err is another one.
func differenceIn(err error) (d difference, ok bool) {
	var refusal *amqp.Error
	if !errors.As(err, &refusal) || refusal.Code != amqp.PreconditionFailed {
		return d, false
	}
	m := inequivalent.FindStringSubmatch(refusal.Reason)
	if m == nil {
		return d, false
	}
	return difference{name: m[1], has: m[2]}, true
}
