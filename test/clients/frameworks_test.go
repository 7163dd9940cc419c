//go:build clients

package clients_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// framework is a framework with two programs that use it.
type framework struct {
	name                string
	publisher, consumer []string // commands
	retries             int      // tries after the first ones
	key                 string   // intake.key
	id                  func(amqp.Delivery) any
}

func frameworks() []framework {
	return []framework{
		{
			name:      "celery",
			publisher: []string{python, "celery/publisher.py"},
			consumer:  []string{python, "celery/consumer.py"},
			retries:   count / 2,
			key:       "header:id",
			id:        func(d amqp.Delivery) any { return d.Headers["id"] },
		},
		{
			name:      "symfony",
			publisher: []string{"php", "symfony/publisher.php"},
			consumer:  []string{"php", "symfony/consumer.php"},
			key:       "message_id",
			id:        func(d amqp.Delivery) any { return d.MessageId },
		},
	}
}

// arrival is one try of one message, as a framework's consumer prints it. Times and the
// delay are in milliseconds.
type arrival struct {
	Number int   `json:"number"`
	Try    int   `json:"try"`
	Sent   int64 `json:"sent"`
	Delay  int64 `json:"delay"`
	At     int64 `json:"at"`
}

// TestFrameworks: messages that a framework delays wait in duefleet. They arrive once at
// the framework's consumer and never early. Both declare the consumer's queue. The task's
// ID is the one that the page names.
func TestFrameworks(t *testing.T) {
	for _, f := range frameworks() {
		t.Run(f.name, func(t *testing.T) {
			url := startFleet(t, map[string]any{"key": f.key, "headers": true})
			consumer := start(t, "consumer", f.consumer, url)
			consumer.awaitReady()
			awaitIntake(t, url)
			broker := channel(t, url)
			copies := bindCopies(t, broker)
			start(t, "publisher", f.publisher, url).awaitEnd()
			consumer.awaitEnd()
			compareArrivals(t, consumer.output, f.retries)
			all := getAll(t, broker, copies)
			if want := count + f.retries; len(all) != want {
				t.Errorf("duefleet delivered %d messages, want %d", len(all), want)
			}
			for _, d := range all {
				if got, want := d.Headers["x-duefleet-id"], f.id(d); got != want {
					t.Fatalf("a task's ID is %v, want %v", got, want)
				}
				if death, found := d.Headers["x-death"]; found {
					t.Fatalf("a message has waited in a queue: %v", death)
				}
			}
		})
	}
}

// bindCopies makes a queue with a copy of everything that duefleet delivers.
func bindCopies(t *testing.T, broker *amqp.Channel) string {
	t.Helper()
	q, err := broker.QueueDeclare("copies", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.QueueBind(q.Name, "#", due, false, nil); err != nil {
		t.Fatal(err)
	}
	return q.Name
}

// awaitIntake waits until a scanner consumes from the intake's queue. Before, the exchange
// could drop messages.
func awaitIntake(t *testing.T, url string) {
	t.Helper()
	check.Until(t, "a scanner at the intake's queue", func() bool {
		broker := channel(t, url) // a missing queue closes the channel
		q, err := broker.QueueDeclarePassive("duefleet.orders.intake", true, false, false, false, nil)
		return err == nil && q.Consumers > 0
	})
}

// compareArrivals checks that every message arrived once and not early, and so did as
// many second tries as there are retries.
func compareArrivals(t *testing.T, lines []string, retries int) {
	t.Helper()
	tries := map[int]map[int]bool{0: {}, 1: {}}
	var latest time.Duration
	for _, text := range lines {
		var a arrival
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("the consumer printed %q: %v", text, err)
		}
		if tries[a.Try][a.Number] {
			t.Errorf("message %d came twice at try %d", a.Number, a.Try)
		}
		tries[a.Try][a.Number] = true
		late := time.Duration(a.At-a.Sent-max(0, a.Delay)) * time.Millisecond
		if late < 0 {
			t.Errorf("message %d came %s early at try %d", a.Number, -late, a.Try)
		}
		latest = max(latest, late)
	}
	if len(tries[0]) != count || len(tries[1]) != retries {
		t.Errorf("%d messages and %d retries came, want %d and %d", len(tries[0]), len(tries[1]), count, retries)
	}
	t.Logf("the latest of %d messages came %s after its delay", len(lines), latest)
}

// TestTheDeclarationOfThePluginIsRefused: RabbitMQ answers a framework that declares the
// intake's exchange as one of the plugin's, or with another type, as the page says. Versions
// differ in the code for an unknown type.
func TestTheDeclarationOfThePluginIsRefused(t *testing.T) {
	url := startFleet(t, nil)
	bindWitness(t, channel(t, url))
	for kind, codes := range map[string][]int{
		"x-delayed-message": {amqp.CommandInvalid, amqp.PreconditionFailed},
		"direct":            {amqp.PreconditionFailed},
	} {
		broker := channel(t, url)
		err := broker.ExchangeDeclare(intake, kind, true, false, false, false, amqp.Table{"x-delayed-type": "topic"})
		var refused *amqp.Error
		if !errors.As(err, &refused) || !slices.Contains(codes, refused.Code) {
			t.Errorf("to declare the intake's exchange as %s: %v, want one of the codes %d", kind, err, codes)
		}
	}
}
