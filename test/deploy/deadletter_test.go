package deploy_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorTellsOfDeadLetters: doctor reports the dead-letter queue of a topic, and
// warns if it holds messages.
func TestDoctorTellsOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": {
		"shards": 1, "declare": map[string]any{"queue": "orders.due", "dead_letter": "orders.dead"},
	}}
	examine(t, s).want("topic orders dead letters", "info", "the first scanner will make it", "")
	startScanner(t, s)
	// The scanner makes the topic's queue last, when the dead-letter queue is bound.
	until(t, s, "doctor to find the queues", nil, func(f findings) bool {
		return f.says("topic orders queue", "warn", "orders.due is there", "") &&
			f.says("topic orders dead letters", "ok", "orders.dead is there and empty", "")
	})
	ch := servertest.Channel(t, s.RabbitMQURL)
	check.OK(t, ch.PublishWithContext(t.Context(), "orders.dead", "", true, false, amqp.Publishing{}))
	until(t, s, "doctor to tell of a dead letter", nil, func(f findings) bool {
		return f.says("topic orders dead letters", "warn", "1 message", "move or purge")
	})
}
