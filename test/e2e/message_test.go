package e2e_test

import (
	"bytes"
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
