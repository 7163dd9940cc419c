package amqpmsg

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/duefleet/duefleet/task"
)

// The headers that an intake adds to a message that is due at once. They show a message
// that goes round without end.
const (
	// HeaderHops is an int64: how often an intake took the message in short intervals.
	HeaderHops = task.ReservedHeaderPrefix + "hops"
	// HeaderTaken is an int64: when an intake took the message, in Unix ms by the scanner's
	// clock.
	HeaderTaken = task.ReservedHeaderPrefix + "taken"
)

// Check returns a *task.RuleError for the first rule that a message breaks. Its field begins
// with "amqp.". An intake stores no message that breaks one of these rules.
func Check(a *task.AMQP) error {
	broken := checkProperties(&a.Properties)
	if broken == nil {
		broken = checkHeaders(a.Headers)
	}
	if broken == nil {
		_, broken = encode(Message{RoutingKey: a.RoutingKey, Properties: a.Properties, Headers: a.Headers})
		if broken != nil && broken.Field != "routing_key" && !inHeaders(broken.Field) {
			broken.Field = join("properties", broken.Field)
		}
	}
	if broken == nil {
		return nil
	}
	broken.Field = Clip(join("amqp", broken.Field))
	return broken
}

func inHeaders(field string) bool { return field == "headers" || strings.HasPrefix(field, "headers.") }

// directReplyTo means a consumer on the publisher's own channel. RabbitMQ replaces it when a
// client publishes, and ends the channel of a scanner that names it
// (https://www.rabbitmq.com/docs/direct-reply-to).
const directReplyTo = "amq.rabbitmq.reply-to"

// persistent is the larger of the two delivery modes.
const persistent = 2

// checkProperties makes RabbitMQ's checks of a message that is published.
func checkProperties(p *Properties) *task.RuleError {
	switch {
	case p.DeliveryMode > persistent:
		return &task.RuleError{Field: "properties.delivery_mode", Rule: "must be 1 or 2", Got: fmt.Sprint(p.DeliveryMode)}
	case p.ReplyTo == directReplyTo:
		return &task.RuleError{Field: "properties.reply_to", Rule: "must be a queue that others can reach", Got: p.ReplyTo}
	case p.Expiration != "" && !IsExpiration(p.Expiration):
		return &task.RuleError{Field: "properties.expiration", Rule: ExpirationRule, Got: size(len(p.Expiration))}
	}
	return nil
}

// ExpirationRule is the rule of IsExpiration.
const ExpirationRule = "must be text with a number of milliseconds below 2^32"

// IsExpiration reports whether RabbitMQ takes a text for a message's expiration.
func IsExpiration(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}

// checkHeaders refuses reserved headers, except for those that an intake stores. It refuses
// a CC or BCC that isn't a list, for which RabbitMQ ends the channel
// (https://www.rabbitmq.com/docs/sender-selected).
func checkHeaders(headers map[string]any) *task.RuleError {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, field := headers[name], join("headers", name)
		switch {
		case name == HeaderHops || name == HeaderTaken:
			if _, ok := value.(int64); !ok {
				return &task.RuleError{Field: field, Rule: "must be an int64", Got: "another type"}
			}
		case Reserved(name):
			return &task.RuleError{Field: field, Rule: "must not begin with " + task.ReservedHeaderPrefix,
				Got: size(len(name))}
		case name == "CC" || name == "BCC":
			if _, ok := value.([]any); !ok {
				return &task.RuleError{Field: field, Rule: "must be an array of routing keys", Got: "another type"}
			}
		}
	}
	return nil
}

// Reserved reports whether a header's name begins with task.ReservedHeaderPrefix, in any
// case of letters.
func Reserved(name string) bool {
	const prefix = task.ReservedHeaderPrefix
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// Clip shortens the path of a field for an error message.
func Clip(path string) string {
	const most = 100
	if len(path) <= most {
		return path
	}
	return strings.ToValidUTF8(path[:most], "") + "..."
}
