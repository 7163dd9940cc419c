package task

import (
	"fmt"
	"time"
)

// Options are optional properties of the RabbitMQ message of one task. The zero value
// sets none; then the topic's settings alone apply.
type Options struct {
	// RoutingKey replaces the topic's routing key for this message: at most 255 bytes.
	// Empty means the topic's.
	RoutingKey string
	// Priority of the message in a priority queue (x-max-priority), 0 to 255. 0 is the
	// lowest, and the same as no priority. A quorum queue of RabbitMQ 4 or later delivers
	// messages with a priority above 4 first.
	Priority uint8
	// Expiration is how long the message may wait in a queue before RabbitMQ drops or
	// dead-letters it, cut to the millisecond: 1 ms to MaxExpiration. The time starts
	// when the message is published, not at the due time. 0 means no limit.
	Expiration time.Duration
	// CorrelationID matches an answer with its request: at most 255 bytes.
	CorrelationID string
	// ReplyTo is the queue for an answer, at most 255 bytes. It can't be
	// amq.rabbitmq.reply-to, which means a consumer on the publisher's own channel.
	ReplyTo string
}

// MaxExpiration is the longest Options.Expiration: RabbitMQ's limit, 2^32 - 1 ms
// (https://www.rabbitmq.com/docs/ttl).
const MaxExpiration = (1<<32 - 1) * time.Millisecond

// maxShortString is the longest AMQP short string, in bytes.
const maxShortString = 255

// directReplyTo means a consumer on the publisher's own channel. RabbitMQ closes a
// channel that names it without having such a consumer
// (https://www.rabbitmq.com/docs/direct-reply-to).
const directReplyTo = "amq.rabbitmq.reply-to"

// CheckOptions returns a RuleError for the first option that is out of range.
func CheckOptions(o Options) error {
	for _, text := range []struct{ field, value string }{
		{"routing_key", o.RoutingKey}, {"correlation_id", o.CorrelationID}, {"reply_to", o.ReplyTo},
	} {
		if err := checkText(text.field, text.value, 0, maxShortString); err != nil {
			return err
		}
	}
	if o.ReplyTo == directReplyTo {
		return &RuleError{"reply_to", "must be a queue that others can reach", o.ReplyTo}
	}
	if o.Expiration != 0 && (o.Expiration < time.Millisecond || o.Expiration > MaxExpiration) {
		return &RuleError{"expiration", fmt.Sprintf("must be 1ms to %s", MaxExpiration), o.Expiration.String()}
	}
	return nil
}
