package intake

import (
	"fmt"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// publishInTurn publishes messages about few IDs: schedules and cancels of each in turn, and a
// schedule at last. Their bodies begin with their numbers and have size bytes.
func (h *harness) publishInTurn(messages, ids, size int) {
	h.t.Helper()
	for n := range messages {
		id := fmt.Sprint("id-", n%ids)
		if n/ids%2 == 1 && n < messages-ids {
			h.publish(newMessage(id, HeaderVerb, Cancel))
			continue
		}
		m := newMessage(id, HeaderIn, "1h")
		m.Body = fmt.Appendf(nil, "%-*d", size, n)
		h.publish(m)
	}
}

// diesWith takes messages and ends. They go back to the queue.
func (h *harness) diesWith(messages int) {
	h.t.Helper()
	channel := servertest.Channel(h.t, h.url)
	check.OK(h.t, channel.Qos(messages, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	check.OK(h.t, err)
	for range messages {
		check.Receive(h.t, "a message", deliveries)
	}
	check.OK(h.t, channel.Close())
}

// TestMessagesThatComeBackKeepTheirOrder: a consumer took many messages about few IDs, and died.
// RabbitMQ puts a message that comes back behind those that came back before. Each task is as its
// last message says.
func TestMessagesThatComeBackKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const messages, ids = 600, 10
	for name, c := range map[string]struct {
		room, size int // bytes
		more       int // consumers that die while messages come back
	}{
		"one dies":                          {room: 16 << 20, size: 4},
		"three die one after the other":     {room: 16 << 20, size: 4, more: 2},
		"they don't fit into memory":        {room: 64 << 10, size: maxPayload},
		"they don't fit, and three die":     {room: 64 << 10, size: maxPayload, more: 2},
		"each is larger than all the room":  {room: 1 << 10, size: maxPayload},
		"each is larger, and one more dies": {room: 1 << 10, size: maxPayload, more: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.room = c.room
			h.publishInTurn(messages, ids, c.size)
			h.diesWith(messages)
			for range c.more {
				h.diesAtWork()
			}
			h.start()
			h.settled()
			records := h.records()
			for n := messages - ids; n < messages; n++ {
				id := fmt.Sprint("id-", n%ids)
				if got, want := string(records[id].message.Body), fmt.Sprintf("%-*d", c.size, n); got != want {
					t.Errorf("task %s is of message %.4q, want the last one, %d", id, got, n)
				}
			}
		})
	}
}

// diesAtWork runs an intake that loses its connection after its second batch is stored.
func (h *harness) diesAtWork() {
	h.t.Helper()
	batches, lost := 0, make(chan struct{})
	var once sync.Once
	h.pace.stored = func() {
		if batches++; batches > 1 {
			once.Do(func() { h.endIn(); close(lost) })
		}
	}
	end := h.start()
	check.Closed(h.t, "two batches to be stored", lost)
	end()
	h.pace.stored = nil
	h.published++ // the messages of the second batch are carried out again
}
