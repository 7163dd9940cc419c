package intake

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

// TestAPriorityDoesNotReorderAnID: RabbitMQ 4.3 would deliver the cancel before the schedule, which
// is older. The schedule is refused then, and no broker leaves the task stored.
func TestAPriorityDoesNotReorderAnID(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	low := newMessage("a", "x-delay", 3_600_000)
	low.Priority = 1
	h.publish(low)
	h.publish(newMessage("a", HeaderVerb, Cancel))
	h.publish(newMessage("b", "x-delay", 3_600_000, HeaderPriority, 9))
	h.publish(newMessage("b", HeaderVerb, Move, HeaderIn, "2h"))
	h.start()
	h.settled()
	m := h.one().message
	if m.Properties.MessageID != "b" || m.Properties.Priority != 9 || m.Headers[HeaderPriority] != nil {
		t.Errorf("stored: %+v", m)
	}
}

func TestWhichBrokersOrderByPriority(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"3.10.8": false, "3.13.7": false, "4.0.5": true, "4.3.6": true, "4.4.0-rc.1": true, "10.0.0": true,
		"": false, "x": false,
	} {
		if got := ordersByPriority(version); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}

// TestWhichPrioritiesAreRefused, on a broker that orders by them.
func TestWhichPrioritiesAreRefused(t *testing.T) {
	t.Parallel()
	dead := amqp.Table{"x-death": []any{amqp.Table{"queue": "orders"}}}
	for name, row := range map[string]struct {
		message amqp.Delivery
		refused bool
	}{
		"none":         {amqp.Delivery{MessageId: "a"}, false},
		"that of none": {amqp.Delivery{MessageId: "a", Priority: 4}, false},
		"lower":        {amqp.Delivery{MessageId: "a", Priority: 1}, true},
		"higher":       {amqp.Delivery{MessageId: "a", Priority: 255}, true},
		"of a cancel": {amqp.Delivery{MessageId: "a", Priority: 5, Headers: amqp.Table{HeaderVerb: Cancel}},
			true},
		"without an ID":            {amqp.Delivery{Priority: 9}, false},
		"from a dead-letter queue": {amqp.Delivery{MessageId: "a", Priority: 9, Headers: dead}, false},
		"delivered before": {amqp.Delivery{MessageId: "a", Priority: 9, Headers: amqp.Table{task.HeaderScheduled: int64(1)}},
			false},
	} {
		it := rules{maxPayload: maxPayload, ordered: true}.read(&row.message, time.Now())
		if got := it.refusal != nil; got != row.refused || got && it.refusal.class != refusedPriority {
			t.Errorf("%s: %+v", name, it.refusal)
		}
		if it := (rules{maxPayload: maxPayload}).read(&row.message, time.Now()); it.refusal != nil {
			t.Errorf("%s, on an older broker: %v", name, it.refusal.why)
		}
	}
}

func TestThePriorityOfTheDeliveredMessage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		value any
		want  uint8
		bad   bool
	}{
		{int32(0), 0, false}, {uint8(255), 255, false}, {int64(7), 7, false}, {"9", 9, false}, {[]byte("10"), 10, false},
		{int32(256), 0, true}, {int8(-1), 0, true}, {"256", 0, true}, {"+1", 0, true}, {"", 0, true},
		{true, 0, true}, {1.5, 0, true},
	} {
		m := amqpmsg.Message{Headers: map[string]any{HeaderPriority: row.value}, Properties: amqpmsg.Properties{Priority: 3}}
		err := setPriority(&m)
		if bad := err != nil; bad != row.bad || !bad && m.Properties.Priority != row.want {
			t.Errorf("%v (%T): %d, %v", row.value, row.value, m.Properties.Priority, err)
		}
		it := rules{maxPayload: maxPayload}.read(&amqp.Delivery{MessageId: "a", Headers: amqp.Table(m.Headers)}, time.Now())
		if (it.refusal != nil) != row.bad || row.bad && it.refusal.class != refusedHeaders {
			t.Errorf("%v (%T): %+v", row.value, row.value, it.refusal)
		}
	}
}
