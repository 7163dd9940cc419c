package consumer

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
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
			check.OK(w.t, err)
			var seen log
			var out check.Log
			cfg := Config{
				Log:     slog.New(slog.NewTextHandler(&out, nil)),
				Handler: func(_ context.Context, d task.Delivery) error { seen.add(d); return nil },
			}
			if row.tls {
				amqps, pool := servertest.OverTLS(t, w.settings.RabbitMQURL)
				cfg.URLs, cfg.TLS = []string{amqps}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
			}
			c := w.consume(cfg)
			check.OK(w.t, w.channel.PublishWithContext(t.Context(), "", row.queue, false, false, message(header("h",
				row.header))))
			check.Until(t, "the message is dead-lettered", func() bool { return w.waiting("dead") == 1 })
			w.send(message(nil))
			check.Until(t, "the task behind it is done", func() bool { return counted(c, done) == 1 })
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

// TestSpansKnowTheFirstGap: tags are added in any order. The set finds the first gap, and
// holds at most one span more than there are gaps.
func TestSpansKnowTheFirstGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tags := rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).Draw(t, "tags")
		var s spans
		there := map[uint64]bool{}
		for _, tag := range tags {
			s.add(tag)
			there[tag] = true
			first, gaps := uint64(0), 0
			for there[first+1] {
				first++
			}
			for i := uint64(1); i <= uint64(len(tags)); i++ {
				if !there[i] && there[i+1] {
					gaps++
				}
			}
			if got := s.first(); got != first {
				t.Fatalf("%v: no gap up to %d, want %d", s, got, first)
			}
			if len(s) > gaps+1 {
				t.Fatalf("%v: %d spans with %d gaps", s, len(s), gaps)
			}
		}
	})
}
