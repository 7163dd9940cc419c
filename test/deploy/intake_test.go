package deploy_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorTellsOfTheIntake: an exchange of another type, a queue without a consumer, and
// refused messages.
func TestDoctorTellsOfTheIntake(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": {
		"shards": 1, "declare": map[string]any{"queue": "orders.due"},
		"intake": map[string]any{"exchange": "orders.in", "queue": "orders.in"},
	}}
	f := examine(t, s)
	for _, check := range []string{"exchange", "queue", "refused"} {
		f.want("topic orders intake "+check, "info", "the first scanner will make it", "")
	}
	ch := servertest.Channel(t, s.RabbitMQURL)
	if err := ch.ExchangeDeclare("orders.in", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	examine(t, s).want("topic orders intake exchange", "fail", "differs from the settings", "intake.type")
	if err := ch.ExchangeDelete("orders.in", false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("orders.in", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	examine(t, s).want("topic orders intake queue", "warn", "no scanner consumes from it", "scanner run")
	if _, err := ch.QueueDelete("orders.in", false, false, false); err != nil {
		t.Fatal(err)
	}
	startScanner(t, s)
	until(t, s, "doctor to find the intake", nil, func(f findings) bool {
		return f.says("topic orders intake exchange", "ok", "of type topic", "") &&
			f.says("topic orders intake queue", "ok", "a scanner consumes from it", "") &&
			f.says("topic orders intake refused", "ok", "there and empty", "") &&
			f.says("topic orders intake rights", "ok", "refused messages and answers", "")
	})
	bad := amqp.Publishing{Headers: amqp.Table{"x-delay": "soon"}}
	if err := ch.PublishWithContext(t.Context(), "orders.in", "", true, false, bad); err != nil {
		t.Fatal(err)
	}
	until(t, s, "doctor to tell of a refused message", nil, func(f findings) bool {
		return f.says("topic orders intake refused", "warn", "1 message that broke a rule", "x-duefleet-refused")
	})
}

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
