package task

import (
	"fmt"
	"time"
)

// Options are what a producer asks of the message of one task, beside what the topic's
// settings say of all. The zero value asks for nothing.
type Options struct {
	// RoutingKey the message is published with, in place of the topic's: at most 255
	// bytes. Empty stands for the topic's.
	RoutingKey string
	// Priority of the message in a queue with priorities (x-max-priority), 0 to 255;
	// 0 is the lowest, and that of a message without one.
	Priority uint8
	// Expiration is for how long the message may wait in a queue before RabbitMQ drops
	// or dead-letters it, cut to the millisecond: 1 ms to MaxExpiration. It begins with the
	// delivery to RabbitMQ, not with the due time. 0 is without end.
	Expiration time.Duration
	// CorrelationID is for those who match answers with requests, at most 255 bytes.
	CorrelationID string
	// ReplyTo is the queue for an answer, at most 255 bytes. It can't be
	// amq.rabbitmq.reply-to, which stands for a consumer on the publisher's own channel.
	ReplyTo string
}

// MaxExpiration is the longest Options.Expiration, 2^32 - 1 ms, which is RabbitMQ's limit
// (https://www.rabbitmq.com/docs/ttl).
const MaxExpiration = (1<<32 - 1) * time.Millisecond

// maxShortString is the longest AMQP short string, in bytes.
const maxShortString = 255

// directReplyTo stands for a consumer on the publisher's own channel; RabbitMQ closes a
// channel that names it without one (https://www.rabbitmq.com/docs/direct-reply-to).
const directReplyTo = "amq.rabbitmq.reply-to"

// CheckOptions returns a RuleError for the first option that is out of its range.
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
