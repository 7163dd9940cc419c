package intake

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// refuse refuses messages with a connection of its own, and returns their IDs.
func (h *harness) refuse(n int, wait time.Duration) (ids []string, err error) {
	h.t.Helper()
	in, endIn := h.connect(true)
	defer endIn()
	out, endOut := h.connect(true)
	defer endOut()
	first := First{Topic: h.redis.Orders(), In: in, Out: out, Queue: queue, Refused: refused, Reason: "stuck", Wait: wait,
		look: 50 * time.Millisecond}
	err = first.Refuse(h.t.Context(), n, func(d *amqp.Delivery) { ids = append(ids, d.MessageId) })
	return ids, err
}

// TestAnOperatorSetsTheFirstMessagesAside: an intake tries a message without end, because its
// shard fails. The operator gets the queue when the intake leaves it, and the messages behind
// go on. A message that was set aside is taken again once the shard works.
func TestAnOperatorSetsTheFirstMessagesAside(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver, h.pace.quiet, h.pace.look = time.Millisecond, 100*time.Millisecond, 10*time.Millisecond
	broken := fmt.Sprintf("%s:task:{orders:%d}", h.redis.Prefix, h.placement.New("stuck"))
	check.OK(t, h.redis.Client.Set(t.Context(), broken, "no hash", 0).Err())
	h.publish(newMessage("stuck", HeaderIn, "1h"))
	h.start()
	check.Until(t, "the intake to be in trouble", func() bool { return h.in.Trouble() != "" })
	ids, err := h.refuse(1, check.Hang)
	if err != nil || len(ids) != 1 || ids[0] != "stuck" {
		t.Fatalf("refused %q, %v", ids, err)
	}
	d := h.taken(refused)
	if d.MessageId != "stuck" || d.Headers[HeaderRefused] != "stuck" || d.Headers[HeaderRefusedClass] != refusedOperator ||
		d.Headers[HeaderIn] != "1h" || d.Headers[HeaderRefusedExchange] != exchange {
		t.Errorf("refused %q with %v", d.MessageId, d.Headers)
	}
	check.OK(t, h.redis.Client.Del(t.Context(), broken).Err())
	check.Until(t, "the intake to go on", func() bool { return h.in.Trouble() == "" })
	if n := len(h.records()); n != 0 {
		t.Errorf("%d tasks are stored, want none", n)
	}
	h.publish(amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body})
	check.Until(t, "the message to be stored", func() bool { return len(h.records()) == 1 })
}

// TestNothingIsRefusedWhileAnotherHasTheQueue: and none of an empty queue.
func TestNothingIsRefusedWhileAnotherHasTheQueue(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if ids, err := h.refuse(1, time.Millisecond); !errors.Is(err, ErrNotOurs) || len(ids) != 0 {
		t.Errorf("of an empty queue: %q, %v", ids, err)
	}
	_, err := h.client.Consume(queue, "scanner", false, false, false, false, nil)
	check.OK(t, err)
	h.publish(newMessage("a", HeaderIn, "1h"))
	if ids, err := h.refuse(1, 100*time.Millisecond); !errors.Is(err, ErrNotOurs) || len(ids) != 0 {
		t.Errorf("of another's queue: %q, %v", ids, err)
	}
	check.OK(t, h.client.Cancel("scanner", false))
	check.OK(t, h.client.Nack(1, false, true))
	h.publish(newMessage("b", HeaderIn, "1h"))
	if ids, err := h.refuse(3, 3*time.Second); err != nil || strings.Join(ids, " ") != "a b" {
		t.Errorf("%q, %v, want both", ids, err)
	}
}

// TestAStalledScannerStoresNothingThatWasSetAside: it read the message before.
func TestAStalledScannerStoresNothingThatWasSetAside(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	stalled, err := router.New(h.redis.Store).Topic(fixture.Orders).BeginTerm(t.Context(), 0)
	check.OK(t, err)
	put := func(id string) error {
		entry := shard.Entry{ID: id, When: task.In(time.Hour), Body: shard.EncodeBody(&task.Task{}), Op: shard.NewOp()}
		return stalled.Schedule(t.Context(), []shard.Entry{entry})[0].Err
	}
	check.OK(t, put("before"))
	h.publish(newMessage("a", HeaderIn, "1h"))
	_, err = h.refuse(1, check.Hang)
	check.OK(t, err)
	if err := put("a"); !errors.Is(err, shard.ErrSuperseded) {
		t.Errorf("it stored the message, too: %v", err)
	}
}
