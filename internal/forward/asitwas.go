package forward

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/amqptypes"
	"github.com/duefleet/duefleet/task"
)

// asItWas returns the message of a task that came through an intake, as it was published.
// It names its group, which the client has given. With own
// it also has duefleet's other headers. RabbitMQ ends the channel for a user-id other
// than the connection's user. Such a user-id becomes a header.
func asItWas(t *task.Task, own bool, user string) amqp.Publishing {
	p := t.AMQP.Properties
	headers := amqptypes.Table(t.AMQP.Headers, ownHeaders)
	if own {
		setOwn(headers, t, false)
		headers[task.HeaderID] = t.ID
		if t.AMQP.RoutingKey != "" {
			headers[task.HeaderRoutingKey] = t.AMQP.RoutingKey
		}
	}
	if t.Group != "" {
		headers[task.HeaderGroup] = t.Group
	}
	if p.UserID != "" && p.UserID != user {
		headers[task.HeaderUserID], p.UserID = p.UserID, ""
	}
	return amqp.Publishing{
		Headers: headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: p.Expiration,
		MessageId: p.MessageID, Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserID, AppId: p.AppID, Body: t.Payload,
	}
}

// refusalAsItWas is refusal for a message that came through an intake.
func refusalAsItWas(t *task.Task, l limits) string {
	p := t.AMQP.Properties
	if l.body > 0 && len(t.Payload) > l.body {
		return tooLarge(t, l)
	}
	for _, key := range []string{"CC", "BCC"} {
		if v, there := t.AMQP.Headers[key]; there {
			if _, list := v.([]any); !list {
				return fmt.Sprintf("header %s: RabbitMQ takes only a list of routing keys", key)
			}
		}
	}
	if p.DeliveryMode > amqp.Persistent {
		return fmt.Sprintf("the delivery mode is %d; RabbitMQ takes 1 and 2", p.DeliveryMode)
	}
	if _, err := strconv.ParseUint(p.Expiration, 10, 32); p.Expiration != "" && err != nil {
		return "the expiration is no number of milliseconds below 2^32"
	}
	rest := headerFrameRest + groupSize(t)
	if l.frame == 0 || l.frame >= amqpmsg.MaxProperties+rest {
		return ""
	}
	b, err := amqpmsg.Encode(amqpmsg.Message{Properties: p, Headers: t.AMQP.Headers})
	if err != nil {
		return err.Error()
	}
	if total := len(b) + rest; total > l.frame {
		return fmt.Sprintf("properties and headers take %d bytes; the broker's frame_max is %d", total, l.frame)
	}
	return ""
}

// idHash returns the hash by which a returned message finds its task. A message that came
// through an intake may have no message-id, so its routing key and body count too.
func idHash(seed maphash.Seed, t *task.Task) uint64 {
	if t.AMQP == nil {
		return maphash.String(seed, t.ID)
	}
	return contentHash(seed, t.AMQP.Properties.MessageID, t.AMQP.RoutingKey, t.Payload)
}

func contentHash(seed maphash.Seed, id, routingKey string, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(id)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(routingKey)
	_ = h.WriteByte(0)
	_, _ = h.Write(body)
	return h.Sum64()
}

// sameContent reports whether a returned message, which has the task's contentHash, is the
// task's message. The route's setting may have changed since it was published, so both
// forms count.
func sameContent(r *amqp.Return, t *task.Task, user string) bool {
	_, own := r.Headers[task.HeaderScheduled]
	p := asItWas(t, own, user)
	return r.ContentType == p.ContentType && r.ContentEncoding == p.ContentEncoding &&
		r.DeliveryMode == p.DeliveryMode && r.Priority == p.Priority && r.CorrelationId == p.CorrelationId &&
		r.ReplyTo == p.ReplyTo && r.Expiration == p.Expiration && r.MessageId == p.MessageId &&
		r.Timestamp.Equal(p.Timestamp) && r.Type == p.Type && r.UserId == p.UserId && r.AppId == p.AppId &&
		sameValue(r.Headers, p.Headers)
}

// sameValue compares two headers by type and bytes: a NaN equals itself.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case amqp.Table:
		b, ok := b.(amqp.Table)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Unix() == b.Unix()
	case float32:
		b, ok := b.(float32)
		return ok && math.Float32bits(a) == math.Float32bits(b)
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	}
	return a == b
}

// refusesUser reports whether the broker ended a channel for a message's user-id.
func refusesUser(e *amqp.Error) bool {
	return e != nil && e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "user_id property")
}
