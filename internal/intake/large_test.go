package intake

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// TestABodyAboveTheRoomIsRefused: it isn't kept in memory if the queue dead-letters what is
// rejected. Otherwise it is read, and published with the reason. Messages around it are carried
// out in their order.
func TestABodyAboveTheRoomIsRefused(t *testing.T) {
	t.Parallel()
	const body, larges = 3 << 20, 3
	for name, dead := range map[string]bool{"rejected": true, "published": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.room, h.dead = 256<<10, dead
			for i := range larges {
				p := newMessage("large", HeaderIn, "1h", "n", int32(i))
				p.Body = make([]byte, body)
				h.publish(newMessage(fmt.Sprint("before", i), HeaderIn, "1h"))
				h.publish(p)
				h.publish(newMessage(fmt.Sprint("before", i), HeaderVerb, Cancel))
				h.publish(newMessage("", HeaderIn, "1h"))
			}
			check.Until(t, "all to be in the queue", func() bool { return h.waiting(queue) == h.published })
			h.start()
			h.settled()
			for i := range larges {
				d := h.taken(refused)
				deaths, _ := d.Headers["x-death"].([]any)
				said, _ := d.Headers[HeaderRefused].(string)
				if len(d.Body) != body || d.MessageId != "large" || d.Headers["n"] != int32(i) ||
					d.RoutingKey != "key.of.a.client" || (len(deaths) > 0) != dead || strings.Contains(said, "max_payload") == dead {
					t.Errorf("refused %d bytes of %s with %v", len(d.Body), d.MessageId, d.Headers)
				}
				if len(deaths) > 0 && deaths[0].(amqp.Table)["reason"] != "rejected" {
					t.Errorf("it died because of %v", deaths[0])
				}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if dead && h.peak > h.room {
				t.Errorf("%d bytes at once, room for %d", h.peak, h.room)
			}
			check.Equal(t, "stored tasks", len(h.records()), larges)
			check.Equal(t, "refused messages of class payload", h.count("duefleet_intake_refused_total", refusedPayload), larges)
			check.Equal(t, "lines in the log", strings.Count(h.log.String(), "message of the intake refused"), 1)
		})
	}
}
