package intake

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
)

// TestAServedQueueStaysBound: a scanner would make the binding again. Without a consumer the
// queue is unbound, and keeps its messages. A queue that is gone is no error.
func TestAServedQueueStaysBound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	broker, _ := h.connect(true)
	in := Abandoned{Exchange: exchange, Queue: queue, RoutingKey: "#"}
	served, err := h.client.Consume(queue, "scanner", true, false, false, false, nil)
	check.OK(h.t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := Unbind(ctx, broker, in); err == nil || !strings.Contains(err.Error(), queue) {
		t.Fatalf("got %v", err)
	}
	h.publish(newMessage("a", HeaderIn, "1h"))
	<-served // it is bound
	check.OK(h.t, h.client.Cancel("scanner", false))
	h.publish(newMessage("b", HeaderIn, "1h"))
	check.Until(t, "the message in the queue", func() bool {
		q, err := h.client.QueueDeclarePassive(queue, true, false, false, false, nil)
		check.OK(h.t, err)
		return q.Messages == 1
	})
	h.unbinds(broker, in, 1)
	h.publish(newMessage("c", HeaderIn, "1h"))
	h.unbinds(broker, in, 1)
	_, err = h.client.QueueDelete(queue, false, false, false)
	check.OK(h.t, err)
	h.unbinds(broker, in, 0)
}

// unbinds checks how many messages lie in the queue that is unbound.
func (h *harness) unbinds(broker *forward.Connection, in Abandoned, want int) {
	h.t.Helper()
	if n, err := Unbind(h.t.Context(), broker, in); err != nil || n != want {
		h.t.Errorf("%d messages, %v; want %d", n, err, want)
	}
}
