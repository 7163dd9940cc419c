package intake

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestARefusedMessageKeepsItsExpiration: it doesn't expire among the refused messages, and
// has its expiration when somebody publishes it again with its headers. Its user-id isn't
// taken from a header, in which any publisher can name any user.
func TestARefusedMessageKeepsItsExpiration(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	p := newMessage("a", HeaderDelay, "soon")
	p.Expiration, p.UserId = "3600000", "guest"
	h.publish(p)
	d := h.taken(refused)
	if d.Expiration != "" || d.UserId != "" ||
		d.Headers[HeaderExpiration] != "3600000" || d.Headers[HeaderUserID] != "guest" {
		t.Errorf("refused with expiration %q, user-id %q and headers %v", d.Expiration, d.UserId, d.Headers)
	}
	d.Headers[HeaderDelay] = int32(60_000)
	h.publish(amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body})
	h.settled()
	if got := h.one().message; got.Properties.Expiration != "3600000" || got.Properties.UserID != "" ||
		len(got.Headers) != 1 {
		t.Errorf("stored with expiration %q, user-id %q and headers %v", got.Properties.Expiration, got.Properties.UserID,
			got.Headers)
	}
	h.publish(amqp.Publishing{MessageId: "a", Headers: d.Headers, Expiration: "7200000"})
	h.settled()
	if got := h.one().message.Properties.Expiration; got != "7200000" {
		t.Errorf("its own expiration became %q", got)
	}
	for _, bad := range []any{"1h", "-1", "4294967296", int32(1), ""} {
		h.publish(newMessage("b", HeaderExpiration, bad))
		if d := h.taken(refused); d.Headers[HeaderRefusedClass] != refusedHeaders {
			t.Errorf("%v is refused for %v", bad, d.Headers[HeaderRefused])
		}
	}
}

// TestLargeHeadersOfARefusedMessage: those that leave no room for the reason are left out.
func TestLargeHeadersOfARefusedMessage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publish(newMessage("large", HeaderVerb, "none", "more", strings.Repeat("x", 128_900)))
	d := h.taken(refused)
	if d.Headers["more"] != nil || d.Headers[HeaderLeftOut] == nil || d.Headers[HeaderRefusedClass] != refusedVerb {
		t.Errorf("%d headers, left out: %v", len(d.Headers), d.Headers[HeaderLeftOut])
	}
	h.publish(newMessage("larger than a frame", "more", strings.Repeat("x", 130_500)))
	d = h.taken(refused)
	if d.Headers[HeaderRefusedClass] != refusedHeaders {
		t.Errorf("refused for %v", d.Headers[HeaderRefusedClass])
	}
}
