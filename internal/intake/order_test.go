package intake

import (
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMessagesThatComeBackKeepTheirOrder: a consumer took many messages about few IDs, and died. The
// intake begins with two at a time, and then takes more. Each task is as its last message says.
func TestMessagesThatComeBackKeepTheirOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const messages, ids = 600, 10
	for n := range messages {
		id := fmt.Sprint("id-", n%ids)
		if n/ids%2 == 1 && n < messages-ids {
			h.publish(newMessage(id, HeaderVerb, Cancel))
		} else {
			m := newMessage(id, HeaderIn, "1h")
			m.Body = fmt.Append(nil, n)
			h.publish(m)
		}
	}
	channel := servertest.Channel(t, h.url)
	check.OK(t, channel.Qos(messages, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	check.OK(t, err)
	for range messages {
		check.Receive(t, "a message", deliveries)
	}
	check.OK(t, channel.Close())
	h.start()
	h.settled()
	records := h.records()
	for n := messages - ids; n < messages; n++ {
		id := fmt.Sprint("id-", n%ids)
		if got := string(records[id].message.Body); got != fmt.Sprint(n) {
			t.Errorf("task %s is of message %q, want the last one, %d", id, got, n)
		}
	}
}
