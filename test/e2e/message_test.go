package e2e_test

import (
	"bytes"
	"iter"
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/fleet"
)

// want is an expected message.
type want struct {
	fleet.Order
	// storedAfter and storedBefore are the earliest and the latest time when Redis stored
	// this version. A due time before that becomes the time of storing.
	storedAfter, storedBefore time.Time
	attempt                   int32
	redelivered               bool
}

// check compares every property and header, with its type on the wire, with the
// documented message.
func (w want) check(t *testing.T, d fleet.Delivery) {
	t.Helper()
	if ms, ok := d.Headers["x-duefleet-due"].(int64); ok {
		if due := time.UnixMilli(ms); due.After(w.Due) && !due.After(w.storedBefore) {
			w.Due = due
		}
	}
	if !bytes.Equal(d.Body, w.Payload) {
		t.Errorf("ID %q: a body of %d bytes that is not the payload of %d bytes", w.ID, len(d.Body), len(w.Payload))
	}
	type properties struct {
		ContentType, ContentEncoding, CorrelationID, ReplyTo, Expiration, MessageID, Type, UserID, AppID string
		DeliveryMode, Priority                                                                           uint8
		Timestamp                                                                                        int64
	}
	got := properties{
		d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.Expiration, d.MessageId, d.Type, d.UserId, d.AppId,
		d.DeliveryMode, d.Priority, d.Timestamp.Unix(),
	}
	expected := properties{
		ContentType: w.ContentType, MessageID: w.ID, Type: w.Topic, AppID: "duefleet",
		DeliveryMode: amqp.Persistent, Timestamp: w.Due.Unix(),
	}
	if w.ContentType == "" {
		expected.ContentType = task.DefaultContentType
	}
	if got != expected {
		t.Errorf("ID %q: properties\n%+v, want\n%+v", w.ID, got, expected)
	}
	w.checkHeaders(t, d.Headers)
}

func (w want) checkHeaders(t *testing.T, got amqp.Table) {
	t.Helper()
	scheduled, ok := got["x-duefleet-scheduled"].(int64)
	if !ok || scheduled < w.storedAfter.UnixMilli() || scheduled > w.storedBefore.UnixMilli() {
		t.Errorf("ID %q: x-duefleet-scheduled is %T %v, want an int64 from %d to %d",
			w.ID, got["x-duefleet-scheduled"], got["x-duefleet-scheduled"], w.storedAfter.UnixMilli(),
			w.storedBefore.UnixMilli())
	}
	expected := amqp.Table{
		"x-duefleet-topic":       w.Topic,
		"x-duefleet-due":         w.Due.UnixMilli(),
		"x-duefleet-scheduled":   scheduled,
		"x-duefleet-attempt":     w.attempt,
		"x-duefleet-redelivered": w.redelivered,
	}
	for k, v := range w.Headers {
		expected[k] = v
	}
	if !maps.Equal(got, expected) { // compares types too
		t.Errorf("ID %q: headers\n%#v, want\n%#v", w.ID, got, expected)
	}
}

// messageLog keeps messages in their order of arrival, and never copies them. A growing
// slice copies its elements. With 300,000 messages that delayed the consumer, and so its
// time stamps, by a third of a second.
type messageLog struct{ chunks [][]fleet.Delivery }

// messageLogChunk is the number of messages in one chunk.
const messageLogChunk = 1024

func (p *messageLog) add(d fleet.Delivery) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last]) == messageLogChunk {
		p.chunks = append(p.chunks, make([]fleet.Delivery, 0, messageLogChunk))
		last++
	}
	p.chunks[last] = append(p.chunks[last], d)
}

// first returns the message that arrived first; there must be one.
func (p *messageLog) first() fleet.Delivery { return p.chunks[0][0] }

func (p *messageLog) all() iter.Seq[fleet.Delivery] {
	return func(yield func(fleet.Delivery) bool) {
		for _, chunk := range p.chunks {
			for _, d := range chunk {
				if !yield(d) {
					return
				}
			}
		}
	}
}
