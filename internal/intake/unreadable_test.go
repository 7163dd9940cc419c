package intake

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/test/check"
)

// TestAMessageThatCannotBeReadIsRefused: RabbitMQ accepts messages whose headers
// amqp091-go can't read. Such a message holds up no other one.
func TestAMessageThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		header any
		retry  bool // it goes through a queue that makes it larger
		says   string
		kept   bool // its headers are in one header
	}{
		"wide":  {make([]any, 8193), false, "more than 8192 elements", true},
		"deep":  {nested(33), false, "headers nest deeper than 32", true},
		"large": {strings.Repeat("x", 130_900), true, "at most 131072 are possible", false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.start()
			p := newMessage("bad", HeaderDelay, int32(500), "h", row.header)
			if row.retry {
				h.publishThroughRetry(p)
			} else {
				h.publish(p)
			}
			d := h.taken(refused)
			said, _ := d.Headers[HeaderRefused].(string)
			if !strings.Contains(said, row.says) || d.Headers[HeaderRefusedClass] != refusedUnreadable ||
				d.Headers[amqpframe.HeaderUnreadable] == nil || d.MessageId != "bad" || string(d.Body) != "body of bad" ||
				d.RoutingKey != "key.of.a.client" {
				t.Errorf("got %q, class %v, ID %s, key %s, %d bytes", said, d.Headers[HeaderRefusedClass], d.MessageId,
					d.RoutingKey, len(d.Body))
			}
			table, kept := d.Headers[amqpframe.HeaderTable].([]byte)
			_, leftOut := d.Headers[HeaderLeftOut]
			if kept != row.kept || leftOut == row.kept || kept && !strings.Contains(string(table), HeaderDelay) {
				t.Errorf("has its headers: %v, %d bytes; left out: %v", kept, len(table), leftOut)
			}
			h.publish(newMessage("behind"))
			h.settled()
			if id := h.one().message.Properties.MessageID; id != "behind" {
				t.Errorf("stored is %q", id)
			}
			if strings.Contains(h.log.String(), "intake stands still") {
				t.Errorf("the intake was interrupted:\n%s", h.log)
			}
		})
	}
}

// publishThroughRetry publishes to a queue whose messages expire into the intake. RabbitMQ
// adds the header x-death, so the properties can become larger than a frame.
func (h *harness) publishThroughRetry(p amqp.Publishing) {
	h.t.Helper()
	_, err := h.client.QueueDeclare("retry", true, false, false, false, amqp.Table{
		"x-message-ttl": 1, "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "key.of.a.client"})
	check.OK(h.t, err)
	check.OK(h.t, h.client.PublishWithContext(h.t.Context(), "", "retry", true, false, p))
	h.published++
}

// nested returns arrays in each other.
func nested(depth int) (v any) {
	for range depth {
		v = []any{v}
	}
	return v
}

// TestARefusedMessageThatComesBackIsRefusedAgain: it has lost its headers, so nobody knows
// when it is due.
func TestARefusedMessageThatComesBackIsRefusedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publishThroughRetry(newMessage("bad", HeaderDelay, int32(500), "h", strings.Repeat("x", 130_900)))
	d := h.taken(refused)
	h.publish(amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body})
	if again := h.taken(refused); again.Headers[HeaderRefusedClass] != refusedUnreadable ||
		again.Headers[HeaderRefused] != d.Headers[HeaderRefused] {
		t.Errorf("got %v", again.Headers)
	}
}

// TestAMessageAtTheLimitsIsTaken: amqp091-go reads it, so it is a task like any other.
func TestAMessageAtTheLimitsIsTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publish(newMessage("a", "wide", make([]any, 8192), "deep", nested(32)))
	h.settled()
	if got := h.one().message.Headers; len(got["wide"].([]any)) != 8192 || got["deep"] == nil {
		t.Errorf("got %d headers", len(got))
	}
}
