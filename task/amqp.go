package task

import "time"

// AMQP is a message that any client of RabbitMQ published to a topic's intake. It is
// delivered as it was published: with this routing key, these properties and headers. The
// body of the message is the task's Payload.
type AMQP struct {
	// RoutingKey has at most 255 bytes.
	RoutingKey string
	// Properties of the message. Its message-id may be empty; the task has an ID all the
	// same.
	Properties AMQPProperties
	// Headers is the property headers; nil: none. Each AMQP type has one Go type:
	//
	//	t bool    b int8    B uint8    s int16   u uint16   I int32  i uint32  l int64
	//	f float32 d float64 D Decimal  S string  x []byte   T time.Time (whole seconds)
	//	A []any   F map[string]any     V nil
	Headers map[string]any
}

// AMQPProperties are the properties of a message of AMQP 0-9-1, without its headers. A
// zero value stands for a property that the message doesn't have. Texts have at most 255
// bytes.
type AMQPProperties struct {
	ContentType     string
	ContentEncoding string
	DeliveryMode    uint8 // 1: transient, 2: persistent
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string // milliseconds, decimal
	MessageID       string
	Timestamp       time.Time // whole seconds
	Type            string
	UserID          string
	AppID           string
}

// Decimal is a number in a header of AMQP: Value / 10^Scale.
type Decimal struct {
	Scale uint8
	Value int32
}
