package intake

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
)

// TestADeliveredMessageComesBack: a consumer tries again later. It publishes what it got, or
// its queue dead-letters that into the intake. The due time of the delivery is in the way of
// no new one, and neither is the reversed delay.
func TestADeliveredMessageComesBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	const hour = int32(3_600_000)
	dueThen, in2100 := time.Now().Add(-time.Second).UnixMilli(), time.UnixMilli(4_102_444_800_000)
	deadLettered, published := h.publishThroughRetry, h.publish
	rows := map[string]struct {
		comeBack func(amqp.Publishing)
		changed  []any // headers
		want     time.Duration
	}{
		"dead-lettered as delivered":           {deadLettered, []any{HeaderDelay, int32(-300)}, 0},
		"dead-lettered task of a producer":     {deadLettered, nil, 0},
		"dead-lettered with a new delay":       {deadLettered, []any{HeaderDelay, hour}, time.Hour},
		"published with a new delay":           {published, []any{HeaderDelay, hour}, time.Hour},
		"published with a new span":            {published, []any{HeaderDelay, int64(-300), HeaderIn, "1h"}, time.Hour},
		"published with a span, without delay": {published, []any{HeaderIn, "1h"}, time.Hour},
		"published with a new due time": {published, []any{HeaderDelay, int32(-300), HeaderDue, in2100.UnixMilli()},
			time.Until(in2100)},
	}
	for name, row := range rows {
		row.comeBack(newMessage(name, append([]any{task.HeaderDue, dueThen, task.HeaderScheduled, dueThen - 300,
			task.HeaderAttempt, int32(1)}, row.changed...)...))
	}
	h.settled()
	all := h.records()
	for name, row := range rows {
		got, there := all[name]
		if delay := max(0, got.delay()); !there || (delay-row.want).Abs() > time.Minute {
			t.Errorf("%s: stored %v, due after %v, want %v", name, there, delay, row.want)
		}
	}
	if d, refused, err := h.client.Get(refused, true); refused || err != nil {
		t.Errorf("refused: %v %v", d.Headers[HeaderRefused], err)
	}
}

// TestDuefleetsOwnHeadersComeBack: a refused message whose mistake somebody corrected is
// taken with the headers of its refusal. So is a delivered message with duefleet's headers.
func TestDuefleetsOwnHeadersComeBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	p := newMessage("a", "X-Duefleet-In", "1h")
	p.Expiration, p.UserId = "3600000", "guest"
	h.publish(p)
	d := h.taken(refused)
	delete(d.Headers, "X-Duefleet-In")
	d.Headers[HeaderIn], d.Headers[HeaderLeftOut] = "1h", "reason"
	h.publish(amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body})
	h.publish(newMessage("b", task.HeaderTopic, "orders", task.HeaderFirstDue, int64(1), task.HeaderScheduled, int64(1),
		task.HeaderAttempt, int32(2), task.HeaderRedelivered, true, task.HeaderRoutingKey, "key", task.HeaderID, "b",
		HeaderUserID, "other"))
	h.settled()
	all := h.records()
	if len(all) != 2 || all["a"].delay() != time.Hour || len(all["a"].message.Headers) != 0 || h.waiting(refused) != 0 {
		t.Errorf("%d refused, stored %+v", h.waiting(refused), all)
	}
}
