package intake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

// TestBatchesKeepTheOrderOfAnID: cutting loses and reorders nothing. No batch has an ID
// twice, or more than its limits, and none ends without a reason.
func TestBatchesKeepTheOrderOfAnID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var arrived []*item
		for range rapid.IntRange(0, 1200).Draw(t, "messages") {
			it := &item{id: fmt.Sprint(rapid.IntRange(0, 2000).Draw(t, "id")), bytes: itemBytes,
				verb: rapid.SampledFrom([]string{Schedule, Schedule, Schedule, IfAbsent, IfPresent, Cancel, Move}).Draw(t, "verb")}
			if rapid.IntRange(0, 20).Draw(t, "refused") == 0 {
				it.refusal = &refusal{}
			}
			if rapid.IntRange(0, 100).Draw(t, "large") == 0 {
				it.bytes = batchBytes / 2
			}
			arrived = append(arrived, it)
		}
		var got []*item
		for rest := arrived; len(rest) > 0; {
			var b batch
			b, rest = cut(rest)
			checkBatch(t, b, rest)
			got = append(got, b...)
		}
		if !slices.Equal(got, arrived) {
			t.Fatalf("%d messages became %d, or in another order", len(arrived), len(got))
		}
	})
}

func checkBatch(t *rapid.T, b batch, rest []*item) {
	ids, bytes := map[string]int{}, 0
	for _, it := range b {
		bytes += it.bytes
		if it.refusal == nil {
			ids[it.id]++
		}
	}
	for id, n := range ids {
		if n > 1 {
			t.Fatalf("ID %s %d times", id, n)
		}
	}
	if len(b) == 0 || len(b) > batchItems || len(b) > 1 && bytes > batchBytes {
		t.Fatalf("%d messages, %d bytes", len(b), bytes)
	}
	if len(rest) == 0 || len(b) == batchItems || bytes+rest[0].bytes > batchBytes {
		return
	}
	if next := rest[0]; ids[next.id] == 0 || next.refusal != nil {
		t.Fatalf("a batch of %d ends before %+v", len(b), next)
	}
}

// TestAMessageThatWouldComeBackIsRefused: only AMQP's default exchange takes a queue's name
// for a routing key.
func TestAMessageThatWouldComeBackIsRefused(t *testing.T) {
	t.Parallel()
	d := &amqp.Delivery{MessageId: "a", RoutingKey: queue}
	it := rules{maxPayload: 1, loops: queue}.read(d, time.Now())
	if it.refusal == nil || it.refusal.class != refusedRoute {
		t.Errorf("refused: %+v", it.refusal)
	}
	if it := (rules{maxPayload: 1}).read(d, time.Now()); it.refusal != nil {
		t.Errorf("refused: %v", it.refusal.why)
	}
}

// TestLargeMessagesStayWithinTheRoom: those that wait when the intake starts, and those behind
// many small ones, which let RabbitMQ send many at once. The messages of an ID keep their order:
// those that didn't fit come before later ones.
func TestLargeMessagesStayWithinTheRoom(t *testing.T) {
	t.Parallel()
	const room, large, larges, last = 16 << 20, 256 << 10, 200, 10
	for name, small := range map[string]int{"first": 0, "behind small ones": 3000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			for i := range small {
				h.publish(newMessage(fmt.Sprint(i), HeaderIn, "1h"))
			}
			for i := range larges {
				p := newMessage(fmt.Sprint(i), HeaderVerb, Cancel)
				p.Body = make([]byte, large)
				h.publish(p)
			}
			for i := range last {
				h.publish(newMessage(fmt.Sprint(i), HeaderIn, "2h"))
			}
			check.Until(t, "all to be in the queue", func() bool { return h.waiting(queue) == h.published })
			h.start()
			h.settled()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.peak > room || h.peak < copies*large {
				t.Errorf("%d bytes at once, room for %d", h.peak, room)
			}
			all := h.records()
			for i := range last {
				if got := all[fmt.Sprint(i)]; got.delay().Round(time.Minute) != 2*time.Hour {
					t.Errorf("task %d is due in %v", i, got.delay())
				}
			}
			if want := max(small-larges, 0) + last; len(all) != want {
				t.Errorf("%d tasks are stored, want %d", len(all), want)
			}
		})
	}
}

// TestMessagesAboveTheRoomShareMemory: the intakes of all topics take no more of them at a time
// than Large allows, and each takes all of its own.
func TestMessagesAboveTheRoomShareMemory(t *testing.T) {
	t.Parallel()
	const size, topics, each, limit = 9 << 20, 3, 4, 20 << 20 // a message takes 18 MiB
	hs, all := make([]*harness, topics), &harness{}
	for i := range hs {
		h := newHarness(t)
		h.large, h.all = NewLarge(limit), all
		if i > 0 {
			h.large = hs[0].large
		}
		for n := range each {
			p := newMessage(fmt.Sprint(n), HeaderVerb, Cancel)
			p.Body = make([]byte, size)
			h.publish(p)
			h.publish(newMessage(fmt.Sprint("small", n), HeaderIn, "1h"))
		}
		check.Until(t, "all to be in the queue", func() bool { return h.waiting(queue) == h.published })
		hs[i] = h
	}
	for _, h := range hs {
		h.start()
	}
	for _, h := range hs {
		h.settled()
		check.Equal(t, "small tasks", len(h.records()), each)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.peak < copies*size || all.peak > limit {
		t.Errorf("%d bytes at once, want %d to %d", all.peak, copies*size, limit)
	}
}

// TestAMessageAboveTheRoomIsTakenAlone: it holds up no other one.
func TestAMessageAboveTheRoomIsTakenAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const size = 9 << 20 // twice in memory, and there is room for 16 MiB
	for i := range 30 {
		p := newMessage(fmt.Sprint(i), HeaderVerb, Cancel)
		if i%10 == 5 {
			p.Body = make([]byte, size)
		}
		h.publish(p)
	}
	check.Until(t, "all to be in the queue", func() bool { return h.waiting(queue) == h.published })
	h.start()
	h.settled()
	h.mu.Lock()
	defer h.mu.Unlock()
	if least, most := copies*size, copies*size+64<<10; h.peak < least || h.peak > most {
		t.Errorf("%d bytes at once, want %d to %d", h.peak, least, most)
	}
}
