// Package amqpmsg packs a message of any AMQP client into the body of a record, and unpacks
// it. Routing key, properties, headers with their types and payload stay as they were
// published. It needs no client of RabbitMQ, so producers don't link one.
package amqpmsg

import "github.com/duefleet/duefleet/task"

// Message is a message as it was published.
type Message struct {
	// RoutingKey has at most 255 bytes.
	RoutingKey string
	// Properties are the properties of the message without its headers.
	Properties Properties
	// Headers is the property headers. An empty table counts as none. task.AMQP says which
	// Go type stands for which AMQP type.
	Headers map[string]any
	// Body is the payload.
	Body []byte
}

// Properties is a part of the public task, so its type is there.
type Properties = task.AMQPProperties

// Decimal is a part of the public task, as Properties is.
type Decimal = task.Decimal

// Version is the first byte of what Encode returns.
//
//	bytes  content
//	1      Version
//	1+n    routing key
//	4      length of the properties
//	2      flags of AMQP: which properties follow
//	...    the properties in the order of AMQP, in its encoding; keys of tables are sorted
//	rest   payload
const Version = 2

const (
	// MaxProperties is the most bytes that properties and headers may take. AMQP sends them
	// in one frame, which is 128 KiB with RabbitMQ's defaults. The rest is for headers that
	// a scanner adds.
	MaxProperties = 126 << 10
	// maxDepth and maxElements are the limits of amqp091-go, so that it can read what it
	// sent.
	maxDepth    = 32
	maxElements = 8192
)

// The flags of AMQP 0-9-1, section 4.2.6.1, in the order of the properties.
const (
	flagContentType = 1 << (15 - iota)
	flagContentEncoding
	flagHeaders
	flagDeliveryMode
	flagPriority
	flagCorrelationID
	flagReplyTo
	flagExpiration
	flagMessageID
	flagTimestamp
	flagType
	flagUserID
	flagAppID
	lastFlag = flagAppID
)
