// Package amqptypes converts messages from the types of amqp091-go to those in
// internal/amqpmsg and back. That package knows no client of RabbitMQ.
package amqptypes

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
)

// Message returns a delivery as a message. It shares the body, and its headers are a copy.
func Message(d *amqp.Delivery) amqpmsg.Message {
	return amqpmsg.Message{
		RoutingKey: d.RoutingKey,
		Properties: amqpmsg.Properties{
			ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
			Priority: d.Priority, CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
			MessageID: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserID: d.UserId, AppID: d.AppId,
		},
		Headers: Headers(d.Headers),
		Body:    d.Body,
	}
}

// Headers returns a copy of a table of amqp091-go. It is never nil.
func Headers(table amqp.Table) map[string]any {
	headers := make(map[string]any, len(table)+1)
	for key, v := range table {
		headers[key] = header(v)
	}
	return headers
}

func header(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return Headers(v)
	case amqp.Decimal:
		return amqpmsg.Decimal{Scale: v.Scale, Value: v.Value}
	case []any:
		return each(v, header)
	}
	return v
}

// Table returns a copy of headers for amqp091-go, with room for more of them.
func Table(headers map[string]any, more int) amqp.Table {
	table := make(amqp.Table, len(headers)+more)
	for key, v := range headers {
		table[key] = field(v)
	}
	return table
}

func field(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Table(v, 0)
	case amqpmsg.Decimal:
		return amqp.Decimal{Scale: v.Scale, Value: v.Value}
	case []any:
		return each(v, field)
	}
	return v
}

func each(values []any, convert func(any) any) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = convert(v)
	}
	return all
}
