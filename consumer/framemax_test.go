package consumer

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestHeadersLargerThanTheConsumersFrames: RabbitMQ takes larger frames from publishers than the
// consumer does. A message with such headers is dead-lettered, and the task behind it is handled.
func TestHeadersLargerThanTheConsumersFrames(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	w := newFixture(t)
	w.makeOrders()
	node, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir(), Conf: "frame_max = 262144"})
	check.OK(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	w.settings.RabbitMQURL = node.URL("/")
	conn, err := amqp.DialConfig(node.URL("/"), amqp.Config{FrameSize: 256 << 10, Heartbeat: check.Hang,
		Dial: amqp.DefaultDial(check.Hang)})
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w.channel, err = conn.Channel()
	check.OK(t, err)
	w.declare()
	var seen log
	var out check.Log
	c := w.consume(Config{
		Log:     slog.New(slog.NewTextHandler(&out, nil)),
		Handler: func(_ context.Context, d task.Delivery) error { seen.add(d); return nil },
	})
	w.send(message(header("h", strings.Repeat("x", 200<<10))))
	check.Until(t, "the message is dead-lettered", func() bool { return w.waiting("dead") == 1 })
	w.send(message(nil))
	check.Until(t, "the task behind it is done", func() bool { return counted(c, done) == 1 })
	check.Equal(t, "deliveries", len(seen.all()), 1)
	check.Equal(t, "unreadable", testutil.ToFloat64(c.metrics.rejected.WithLabelValues("unreadable")), 1)
	if said := out.String(); !strings.Contains(said, "at most 131072 are possible") ||
		strings.Contains(said, "can't consume") {
		t.Errorf("the log says:\n%s", said)
	}
}
