package task

import "time"

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
