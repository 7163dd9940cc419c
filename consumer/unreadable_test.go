package consumer

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestAMessageThatCannotBeReadIsDeadLettered: RabbitMQ accepts messages whose headers
// amqp091-go can't read. The tasks behind such a message are handled.
func TestAMessageThatCannotBeReadIsDeadLettered(t *testing.T) {
	t.Parallel()
	deep := any(int32(1))
	for range 33 {
		deep = []any{deep}
	}
	rows := map[string]struct {
		header any
		queue  string
		says   string
		tls    bool
	}{
		"wide": {make([]any, 8193), queue, "more than 8192 elements", false},
		"deep": {deep, queue, "headers nest deeper than 32", false},
		// RabbitMQ adds x-death, so the properties become larger than a frame.
		"large":    {strings.Repeat("x", 130_800), "retry", "at most 131072 are possible", false},
		"over TLS": {deep, queue, "headers nest deeper than 32", true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.makeOrders()
			_, err := w.channel.QueueDeclare("retry", true, false, false, false, amqp.Table{
				"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
			w.ok(err)
			var seen log
			var out wait.Log
			cfg := Config{
				Log:     slog.New(slog.NewTextHandler(&out, nil)),
				Handler: func(_ context.Context, d task.Delivery) error { seen.add(d); return nil },
			}
			if row.tls {
				amqps, pool := servertest.OverTLS(t, w.settings.RabbitMQURL)
				cfg.URLs, cfg.TLS = []string{amqps}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
			}
			c := w.consume(cfg)
			w.ok(w.channel.PublishWithContext(t.Context(), "", row.queue, false, false, message(header("h", row.header))))
			wait.For(t, "the message is dead-lettered", func() bool { return w.waiting("dead") == 1 })
			w.send(message(nil))
			wait.For(t, "the task behind it is done", func() bool { return counted(c, done) == 1 })
			if len(seen.all()) != 1 {
				t.Errorf("handled %d deliveries", len(seen.all()))
			}
			if n := testutil.ToFloat64(c.metrics.rejected.WithLabelValues("unreadable")); n != 1 {
				t.Errorf("%v counted as unreadable", n)
			}
			if said := out.String(); !strings.Contains(said, row.says) || strings.Contains(said, "can't consume") {
				t.Errorf("the log says:\n%s", said)
			}
		})
	}
}
