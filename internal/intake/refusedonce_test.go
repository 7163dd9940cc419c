package intake

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// oneBatch publishes messages that break a rule, and starts an intake that gets them as one batch.
// tried returns how often it tried batches.
func (h *harness) oneBatch(bad []amqp.Publishing, keys ...string) (tried func() int) {
	h.t.Helper()
	h.inlet.Declare = false // or each session would repair what the test made
	arrived := make(chan struct{})
	var tries, received atomic.Int32
	h.pace.arrived = func() { received.Add(1) }
	h.pace.stored = func() {
		<-arrived
		tries.Add(1)
	}
	h.start()
	h.publish(newMessage("first", HeaderIn, "1h"))
	check.Until(h.t, "the first to be stored", func() bool { return len(h.records()) == 1 })
	for i, p := range bad {
		check.OK(h.t, h.client.PublishWithContext(h.t.Context(), exchange, keys[i%len(keys)], true, false, p))
		h.published++
	}
	check.Until(h.t, "the others to be one batch", func() bool { return int(received.Load()) == 1+len(bad) })
	close(arrived)
	return func() int { return int(tries.Load()) }
}

// TestARefusedMessageIsSentOnce: the queue for refused messages is full in the middle of a batch.
// Those that it took before aren't sent again, neither by the same scanner nor by the next one.
func TestARefusedMessageIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, handOver := range map[string]time.Duration{"one scanner": 0, "handed over": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.pace.handOver = handOver
			_, err := h.client.QueueDelete(refused, false, false, false)
			check.OK(t, err)
			const room, messages = 3, 8
			_, err = h.client.QueueDeclare(refused, true, false, false, false,
				amqp.Table{"x-max-length": int32(room), "x-overflow": "reject-publish"})
			check.OK(t, err)
			check.OK(t, h.client.QueueBind(refused, "", refused, false, nil))
			var bad []amqp.Publishing
			for i := range messages {
				bad = append(bad, newMessage(fmt.Sprint("bad", i), HeaderVerb, "none"))
			}
			tried := h.oneBatch(bad, "k")
			check.Until(t, "several tries with a full queue", func() bool { return tried() > 4 && h.waiting(refused) >= room })
			times := map[string]int{}
			for range messages {
				times[h.taken(refused).MessageId]++
			}
			h.settled()
			if n := h.waiting(refused); n != 0 || len(times) != messages {
				t.Errorf("%d messages were refused as %v, and %d more", messages, times, n)
			}
			check.Equal(t, "messages carried out", h.counted(), 1+messages)
		})
	}
}

// TestAMessageThatComesBackIsSentAlone: the exchange for refused messages has a queue for some
// routing keys only. The messages differ in nothing else but a header.
func TestAMessageThatComesBackIsSentAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	check.OK(t, h.client.ExchangeDelete(refused, false, false))
	check.OK(t, h.client.ExchangeDeclare(refused, amqp.ExchangeHeaders, true, false, false, false, nil))
	bound := func(kind string) amqp.Table { return amqp.Table{"x-match": "all", "kind": kind} }
	check.OK(t, h.client.QueueBind(refused, "", refused, false, bound("a")))
	var bad []amqp.Publishing
	for i := range 12 {
		kind := string("aab"[i%3])
		p := newMessage("", HeaderVerb, "none", "kind", kind, "at", time.Unix(1_900_000_000, 0), "list", []any{int16(7), nil})
		p.Timestamp, p.Body = time.Unix(1_800_000_000, 0), nil
		bad = append(bad, p)
	}
	tried := h.oneBatch(bad, "k", "l")
	check.Until(t, "several tries", func() bool { return tried() > 5 })
	check.Equal(t, "refused messages that a queue is bound for", h.waiting(refused), 8)
	check.OK(t, h.client.QueueBind(refused, "", refused, false, bound("b")))
	h.settled()
	check.Equal(t, "all refused messages", h.waiting(refused), 12)
	check.Equal(t, "messages carried out", h.counted(), 13)
}
