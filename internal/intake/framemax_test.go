package intake

import (
	"context"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	// wideFrame is above the scanner's frame_max, and narrowFrame below.
	wideFrame   = 256 << 10
	narrowFrame = 64 << 10
)

// framesOf starts a RabbitMQ with a frame_max. It returns its URL and a channel of a publisher with
// such frames.
func framesOf(t *testing.T, frameMax int) (url string, publisher *amqp.Channel) {
	t.Helper()
	servertest.Need(t, "rabbitmq-server")
	node, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir(),
		Conf: fmt.Sprint("frame_max = ", frameMax)})
	check.OK(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	conn, err := amqp.DialConfig(node.URL("/"), amqp.Config{FrameSize: frameMax, Heartbeat: check.Hang,
		Dial: amqp.DefaultDial(check.Hang)})
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	publisher, err = conn.Channel()
	check.OK(t, err)
	return node.URL("/"), publisher
}

// TestHeadersLargerThanTheScannersFrames: RabbitMQ doesn't divide headers, so a publisher with
// larger frames sends some that a scanner can't read. Such a message is refused, and those behind
// it are taken in.
func TestHeadersLargerThanTheScannersFrames(t *testing.T) {
	t.Parallel()
	url, publisher := framesOf(t, wideFrame)
	h := newHarnessAt(t, fixture.New(t), url)
	h.client = publisher
	h.start()
	for n, size := range []int{200 << 10, 120 << 10, 250 << 10} {
		h.publish(newMessage(fmt.Sprint("large", n), HeaderIn, "1h", "h", strings.Repeat("x", size)))
		h.publish(newMessage(fmt.Sprint("behind", n), HeaderIn, "1h"))
	}
	h.settled()
	all := h.records()
	for _, id := range []string{"behind0", "large1", "behind1", "behind2"} {
		if _, there := all[id]; !there {
			t.Errorf("%s isn't stored", id)
		}
	}
	check.Equal(t, "tasks", len(all), 4)
	for _, id := range []string{"large0", "large2"} {
		d := h.taken(refused)
		said, _ := d.Headers[HeaderRefused].(string)
		if d.MessageId != id || d.Headers[HeaderRefusedClass] != refusedUnreadable || string(d.Body) != "body of "+id ||
			!strings.Contains(said, "at most 131072 are possible") || d.Headers[HeaderLeftOut] == nil ||
			d.Headers[amqpframe.HeaderTable] != nil {
			t.Errorf("%q is refused with class %v: %q", d.MessageId, d.Headers[HeaderRefusedClass], said)
		}
	}
	if strings.Contains(h.log.String(), "intake stands still") {
		t.Errorf("the intake was interrupted:\n%s", h.log)
	}
}

// TestReasonsThatDoNotFitIntoAFrame: the headers of refused messages nearly fill the frames of
// RabbitMQ, which ends a connection with a larger frame. They are left out, and the reason isn't.
// Smaller ones are kept.
func TestReasonsThatDoNotFitIntoAFrame(t *testing.T) {
	t.Parallel()
	url, publisher := framesOf(t, narrowFrame)
	h := newHarnessAt(t, fixture.New(t), url)
	h.client = publisher
	end := h.start()
	for id, left := range map[string]int{"large": 200, "small": 3 << 10} {
		h.publish(newMessage(id, HeaderVerb, "none", "more", strings.Repeat("x", narrowFrame-left)))
		d := h.taken(refused)
		kept, said := d.Headers["more"] != nil, d.Headers[HeaderLeftOut]
		if d.MessageId != id || d.Headers[HeaderRefusedClass] != refusedVerb || d.Headers[HeaderRefused] == nil ||
			kept != (id == "small") || kept != (said == nil) {
			t.Errorf("%q is refused with class %v; its header is kept: %v; %v", d.MessageId,
				d.Headers[HeaderRefusedClass], kept, said)
		}
	}
	end()
	h.publish(newMessage("stuck", HeaderIn, "1h", "more", strings.Repeat("x", narrowFrame-200)))
	_, err := h.refuse(1, check.Hang)
	check.OK(t, err)
	if d := h.taken(refused); d.MessageId != "stuck" || d.Headers["more"] != nil || d.Headers[HeaderLeftOut] == nil {
		t.Errorf("%q is refused with %d headers", d.MessageId, len(d.Headers))
	}
}
