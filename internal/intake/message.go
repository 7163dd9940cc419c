package intake

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/shard"
)

// message returns a delivery in the form of amqpmsg. Its headers are a copy.
func message(d *amqp.Delivery) amqpmsg.Message {
	return amqpmsg.Message{
		RoutingKey: d.RoutingKey,
		Properties: amqpmsg.Properties{
			ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
			Priority: d.Priority, CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
			MessageID: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserID: d.UserId, AppID: d.AppId,
		},
		Headers: table(d.Headers),
		Body:    d.Body,
	}
}

func table(from amqp.Table) map[string]any {
	to := make(map[string]any, len(from)+1)
	for key, v := range from {
		to[key] = value(v)
	}
	return to
}

// value converts the types that amqp091-go has of its own.
func value(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return table(v)
	case amqp.Decimal:
		return amqpmsg.Decimal{Scale: v.Scale, Value: v.Value}
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = value(v[i])
		}
		return all
	}
	return v
}

// opOf returns an op that depends on the message alone, so that a redelivery is known as
// the message that was stored already. Messages that are equal in everything, also in
// their correlation_id, are the same request.
func opOf(id string, when shard.When, body []byte) shard.Op {
	h := xxhash.New()
	_, _ = fmt.Fprintf(h, "%d %s %s ", len(id), id, when) // a hash takes every write
	_, _ = h.Write(body)
	sum := binary.BigEndian.AppendUint64(nil, h.Sum64())
	return shard.Op(sum[:6])
}
