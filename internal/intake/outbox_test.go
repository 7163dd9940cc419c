package intake

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// TestAConfirmedAnswerIsNotSentAgain: the connection is lost in the middle of a batch, and
// the batch is tried again.
func TestAConfirmedAnswerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	out, end := h.connect(false)
	o := &outbox{broker: out}
	to := h.answers()
	var wanted batch
	for _, correlation := range []string{"a", "b", "c"} {
		wanted = append(wanted, &item{code: codeOK, delivery: &amqp.Delivery{ReplyTo: to, CorrelationId: correlation}})
	}
	check.OK(h.t, o.answer(t.Context(), wanted[:2]))
	for _, it := range wanted[:2] {
		if acked, err := it.answer.WaitContext(check.Context(t)); err != nil || !acked {
			t.Fatalf("an answer isn't confirmed: %v", err)
		}
	}
	end()
	check.Until(t, "the channel to end", o.channel.IsClosed)
	o.broker, _ = h.connect(false)
	check.OK(h.t, o.answer(t.Context(), wanted))
	for _, want := range []string{"a", "b", "c"} {
		if _, of := h.answer(to); of != want {
			t.Errorf("answered %s, want %s", of, want)
		}
	}
	if n := h.waiting(to); n != 0 {
		t.Errorf("%d answers were sent twice", n)
	}
}
