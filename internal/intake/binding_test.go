package intake

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// storedAgain publishes until a task is stored.
func (h *harness) storedAgain() {
	h.t.Helper()
	check.Until(h.t, "a message to reach the intake again", func() bool {
		h.publish(newMessage("after", HeaderIn, "1h"))
		return len(h.records()) > 0
	})
}

// TestAnExchangeThatAPublisherMadeAgainIsBound: RabbitMQ confirms what nobody is bound for. So the log
// says that messages are lost, and a metric counts it.
func TestAnExchangeThatAPublisherMadeAgainIsBound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.ExchangeDelete(exchange, false, false))
	check.OK(h.t, h.client.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	h.storedAgain()
	check.Until(t, "the intake to say that the exchange was deleted", func() bool {
		return strings.Contains(h.log.String(), `exchange \"`+exchange+`\" was deleted and declared again`)
	})
	check.Equal(t, "counted errors", h.failed.Load(), 1)
	h.storedAgain()
	check.Equal(t, "counted errors of a while", h.failed.Load(), 1)
}

// TestAnExchangeThatWasDeletedIsMadeAgain: the log says that it was missing.
func TestAnExchangeThatWasDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.ExchangeDelete(exchange, false, false))
	check.Until(t, "the intake to say what was missing", func() bool {
		return strings.Contains(h.log.String(), "intake makes again what was missing")
	})
	h.publish(newMessage("a", HeaderIn, "1h"))
	h.settled()
	if n := len(h.records()); n != 1 || strings.Contains(h.log.String(), "stands still") {
		t.Errorf("%d tasks, log:\n%s", n, h.log)
	}
}

// TestABindingThatWasRemovedIsMadeAgain: also one that somebody removed by hand.
func TestABindingThatWasRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.QueueUnbind(queue, "#", exchange, nil))
	h.storedAgain()
}

// TestTheQueueForRefusedMessagesIsBoundAgain: RabbitMQ returns what breaks a rule while its
// exchange is there and its queue isn't bound. A message that expires waits for RabbitMQ's next
// try, which is minutes later.
func TestTheQueueForRefusedMessagesIsBoundAgain(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(h *harness) error{
		"unbound": func(h *harness) error { return h.client.QueueUnbind(refused, "", refused, nil) },
		"no queue": func(h *harness) error {
			_, err := h.client.QueueDelete(refused, false, false, false)
			return err
		},
		"no exchange": func(h *harness) error { return h.client.ExchangeDelete(refused, false, false) },
		"another exchange": func(h *harness) error {
			check.OK(h.t, h.client.ExchangeDelete(refused, false, false))
			return h.client.ExchangeDeclare(refused, amqp.ExchangeFanout, true, false, false, false, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.pace.bind, h.pace.handOver = 100*time.Millisecond, time.Hour // else a new session makes it
			h.start()
			check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
			check.OK(t, remove(h))
			h.publish(newMessage("bad", HeaderVerb, "none"))
			h.settled()
			check.Equal(t, "refused messages", h.waiting(refused), 1)
		})
	}
}

// keepsBound runs KeepBound until the test ends.
func (h *harness) keepsBound(in *Intake) {
	h.t.Helper()
	check.Background(h.t, "the binding", func(ctx context.Context) error {
		in.KeepBound(ctx, Settings{Queue: queue, Refused: refused, Prepare: h.inlet.Prepare, Bind: h.inlet.Bind})
		return nil
	})
}

// TestThePausedIntakeIsMadeAndStaysBound: without a consumer.
func TestThePausedIntakeIsMadeAndStaysBound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	check.OK(t, h.client.ExchangeDelete(exchange, false, false))
	_, err := h.client.QueueDelete(queue, false, false, false)
	check.OK(t, err)
	h.keepsBound(h.intake())
	check.Until(t, "the queue to be made", func() bool {
		channel := servertest.Channel(t, h.url)
		_, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && channel.ExchangeDeclarePassive(exchange, "topic", true, false, false, false, nil) == nil
	})
	arrives := func() {
		t.Helper()
		before := h.waiting(queue)
		check.Until(t, "a message in the queue", func() bool {
			h.publish(newMessage("a", HeaderIn, "1h"))
			return h.waiting(queue) > before
		})
	}
	arrives()
	check.OK(t, h.client.ExchangeDelete(exchange, false, false))
	check.OK(t, h.client.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	arrives()
	check.OK(t, h.client.QueueUnbind(refused, "", refused, nil))
	check.Until(t, "the queue for refused messages to be bound", func() bool {
		check.OK(t, h.client.PublishWithContext(t.Context(), refused, "", false, false, amqp.Publishing{}))
		return h.waiting(refused) > 0
	})
	check.Equal(t, "consumers", h.consumers(), 0)
}

// opened is a connection that counts the channels that were asked for.
type opened struct {
	Inbound
	channels atomic.Int64
}

func (o *opened) Channel(ctx context.Context, prepare func(*amqp.Channel) error) (*amqp.Channel, error) {
	o.channels.Add(1)
	return o.Inbound.Channel(ctx, prepare)
}

// TestAPausedTopicThatIsRemovedIsNotBound: its queue may have been unbound meanwhile.
func TestAPausedTopicThatIsRemovedIsNotBound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 10 * time.Millisecond
	h.redis = fixture.New(t) // with another prefix, where no topic is
	var asked atomic.Int32
	h.redis.Store = h.breakable(func(faults.Request) bool {
		asked.Add(1)
		return false
	})
	in := h.intake()
	connection := &opened{Inbound: in.cfg.In}
	in.cfg.In = connection
	h.keepsBound(in)
	check.Until(t, "some looks for the topic", func() bool { return asked.Load() > 10 })
	check.Equal(t, "channels", connection.channels.Load(), 0)
	h.redis.Serve(t, 4)
	check.Until(t, "a channel for a topic that is there", func() bool { return connection.channels.Load() > 0 })
}

// consumers returns how many consumers the queue has.
func (h *harness) consumers() int {
	h.t.Helper()
	q, err := h.client.QueueDeclarePassive(queue, true, false, false, false, nil)
	check.OK(h.t, err)
	return q.Consumers
}
