package intake

import (
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/test/wait"
)

// TestLargeMessagesStayWithinTheRoom: those that wait when the intake starts, too. It can't
// know their size, and RabbitMQ sends as many as the prefetch allows.
func TestLargeMessagesStayWithinTheRoom(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const messages, size, room = 30, 1 << 20, 16 << 20
	for i := range messages {
		p := newMessage(fmt.Sprint(i), HeaderVerb, Cancel)
		p.Body = make([]byte, size)
		h.publish(p)
	}
	wait.For(t, "all to be in the queue", func() bool { return h.waiting(queue) == messages })
	h.start()
	h.settled()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.peak > room || h.peak < copies*size {
		t.Errorf("%d bytes at once, room for %d", h.peak, room)
	}
}
