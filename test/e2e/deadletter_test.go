package e2e_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// deadLetterTopic is a topic whose exchanges and queues the scanners declare.
func deadLetterTopic(dead string) map[string]fleet.Topic {
	return map[string]fleet.Topic{"orders": {
		"shards": 1, "routing_key": "order.due",
		"declare": map[string]any{"queue": "orders.due", "queue_type": "quorum", "dead_letter": dead},
	}}
}

// deadLetters is a fleet whose scanners have the rights that docs/deploy.md lists for
// topics with declare.dead_letter, on a RabbitMQ of the test's own.
type deadLetters struct {
	*fixture
	rabbitmq *servers.RabbitMQ
	admin    string // a URL
}

func newDeadLetters(t *testing.T) deadLetters {
	t.Helper()
	servertest.Need(t, "rabbitmq-server")
	node, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() { _ = node.Kill() })
	d := deadLetters{rabbitmq: node, admin: node.URL("/")}
	for _, args := range [][]string{{"add_user", "duefleet", "secret"}, readRights(t).rabbitmqDeadLetter} {
		_, err := node.Ctl(t.Context(), args...)
		check.OK(t, err)
	}
	settings := fleet.Settings{Topics: deadLetterTopic("orders.dead")}
	settings.RabbitMQURL = strings.Replace(d.admin, "guest:guest", "duefleet:secret", 1)
	settings.RedisAddr, settings.RedisPrefix = servertest.Redis(t)
	d.fixture = newFixtureOn(t, settings, servertest.RedisOptions(settings.RedisAddr))
	return d
}

// reject sends a message that is no task through the topic's exchange. A consumer rejects
// it. reject waits until it is in the dead-letter queue.
func (d deadLetters) reject(ch *amqp.Channel, body string) {
	d.t.Helper()
	c, err := consumer.New(consumer.Config{
		URLs: []string{d.admin}, Queue: "orders.due", Redis: d.redis, Prefix: d.settings.RedisPrefix,
		Log: slog.New(slog.DiscardHandler), Handler: func(context.Context, task.Delivery) error { return nil },
	})
	check.OK(d.t, err)
	stop := check.Background(d.t, "the consumer", c.Run)
	defer stop()
	m := amqp.Publishing{Body: []byte(body)}
	check.OK(d.t, ch.PublishWithContext(d.t.Context(), "orders", "order.due", true, false, m))
	check.Until(d.t, "the message in the dead-letter queue", rarely(func() bool {
		m, there, err := ch.Get("orders.dead", true)
		check.OK(d.t, err)
		if there && string(m.Body) != body {
			d.t.Errorf("dead letter %q, want %q", m.Body, body)
		}
		return there
	}))
}

// TestWhatIsNoTaskIsKept: the rights of docs/deploy.md are enough to declare the queue
// and the dead-letter queue. Messages that a consumer rejects go to the latter.
func TestWhatIsNoTaskIsKept(t *testing.T) {
	t.Parallel()
	d := newDeadLetters(t)
	d.start(1)
	d.awaitServed(1)
	must(t, d.producer("schedule", "--topic", "orders", "--id", "a", "--in", "0s"))
	ch := servertest.Channel(t, d.admin)
	check.Until(t, "the task to be delivered", rarely(func() bool { return d.status().Topic("orders").Pending == 0 }))
	d.reject(ch, "no task")
	d.stop()
}

// TestAPolicyServesAQueueThatExists: if the queue exists already, a topic with
// declare.dead_letter stops, and the reason names a policy. With that policy instead of
// declare.dead_letter, the topic delivers and dead letters are kept.
func TestAPolicyServesAQueueThatExists(t *testing.T) {
	t.Parallel()
	d := newDeadLetters(t)
	d.settings.Topics = deadLetterTopic("")
	d.write()
	d.start(1)
	d.awaitServed(1)
	must(t, d.producer("schedule", "--topic", "orders", "--id", "a", "--in", "0s"))
	check.Until(t, "the task to be delivered", rarely(func() bool { return d.status().Topic("orders").Pending == 0 }))
	d.settings.Topics = deadLetterTopic("orders.dead")
	d.write()
	var command []string
	advice := regexp.MustCompile(`rabbitmqctl (set_policy) -p VHOST (\S+) '([^']*)' '([^']*)' --apply-to queues`)
	check.Until(t, "the status to name a policy", rarely(func() bool {
		notes := strings.Join(d.status().Topic("orders").Notes, "\n")
		command = advice.FindStringSubmatch(notes)
		return command != nil
	}))
	args := []string{command[1], "-p", "/", command[2], command[3], command[4], "--apply-to", "queues"}
	_, err := d.rabbitmq.Ctl(t.Context(), args...)
	check.OK(t, err)
	d.settings.Topics = deadLetterTopic("")
	d.write()
	must(t, d.producer("schedule", "--topic", "orders", "--id", "b", "--in", "0s"))
	check.Until(t, "the topic to be delivered again", rarely(func() bool {
		return d.status().Topic("orders").Pending == 0
	}))
	d.reject(servertest.Channel(t, d.admin), "no task")
	d.stop()
}
