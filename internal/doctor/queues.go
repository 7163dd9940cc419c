package doctor

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// queueArguments returns the arguments with which a scanner declares a topic's queue, as
// JSON.
func queueArguments(d config.Declare) string {
	dead := ""
	if d.DeadLetter != "" {
		dead = fmt.Sprintf(`,"x-dead-letter-exchange":"%s"`, d.DeadLetter)
		if d.QueueType == "quorum" {
			dead += `,"x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"`
		}
	}
	return fmt.Sprintf(`{"x-queue-type":"%s"%s}`, d.QueueType, dead)
}

// examineDeadLetters reports whether the dead-letter queue that a topic declares exists
// and is empty. AMQP can't tell whether the topic's own queue sends rejected messages to
// it.
func (b *broker) examineDeadLetters(ctx context.Context, r *report, name string, t config.Topic, running bool) {
	if t.Declare == nil || t.Declare.DeadLetter == "" {
		return
	}
	check, queue := "topic "+name+" dead letters", t.Declare.DeadLetter
	found, err := b.queue(ctx, queue)
	switch {
	case err == nil && found.Messages > 0:
		r.warn(check, "look at the headers and bodies of what is in "+queue+", fix what sends them, then move or purge them",
			"queue %s holds %s that consumers rejected, or that expired", queue, messages(found.Messages))
	case err == nil:
		r.ok(check, "queue %s is there and empty", queue)
	case notFound(err) && !running:
		r.info(check, "queue %s isn't there; the first scanner will make it", queue)
	case notFound(err):
		r.fail(check, "restart a scanner, which makes exchange and queue "+queue, "%v", err)
	default:
		b.refuse(ctx, r, check, "queue "+queue, err)
	}
}

func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// examineOldQueue reports a queue that an earlier document declared and that still exists.
// AMQP can't tell whether it is still bound.
func (p Target) examineOldQueue(ctx context.Context, r *report, b *broker, name string, t config.Topic,
	left topicconfig.Binding) {
	found, err := b.queue(ctx, left.Queue)
	if err != nil {
		return
	}
	r.warn("topic "+name+" old queue", fmt.Sprintf("%s; then delete %s when it is empty",
		p.command("topic set "+name+" --unbind-old"), left.Queue),
		"queue %s, which an earlier document declared, is still there, with %d messages and %d consumers; AMQP can't "+
			"tell whether it is still bound to exchange %s for key %s: if it is, each task arrives there and in %s",
		left.Queue, found.Messages, found.Consumers, left.Exchange, left.RoutingKey, t.Declare.Queue)
}

// examineOldIntake reports the queue of an earlier intake that still exists and that nobody
// consumes from. unbind is the command that removes its binding.
func (p Target) examineOldIntake(ctx context.Context, r *report, b *broker, name string, left topicconfig.LeftIntake,
	unbind string) {
	check := "topic " + name + " old intake"
	found, err := b.queue(ctx, left.Queue)
	switch {
	case notFound(err), err == nil && found.Consumers > 0:
	case err == nil:
		r.warn(check, fmt.Sprintf("let publishers to %s use another exchange; then %s; then delete %s when it is empty",
			left.Exchange, unbind, left.Queue),
			"queue %s of an earlier intake holds %s, and nobody consumes from it; AMQP can't tell whether it is still bound "+
				"to exchange %s: if it is, RabbitMQ confirms what is published there, and no scanner takes it", left.Queue,
			messages(found.Messages), left.Exchange)
	default:
		b.refuse(ctx, r, check, "queue "+left.Queue, err)
	}
}

// Queue has the numbers that RabbitMQ gives for a queue.
type Queue struct {
	Name string
	// Messages is how many are ready: without the messages that consumers have.
	Messages, Consumers int
	// Why is why these numbers aren't known; "" if they are.
	Why string
}

// AskQueues asks the first broker that answers about queues, on one connection that it closes.
// It needs no other rights than Examine. The error says why no broker answers, without a URL.
func AskQueues(ctx context.Context, settings config.RabbitMQ, names []string) ([]Queue, error) {
	secure, err := connect.ReadTLS(settings.TLS)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq.tls: %w", err)
	}
	var refused error
	for _, url := range settings.URLs {
		b, err := dial(ctx, url, secure)
		if err == nil {
			return b.queues(ctx, names)
		}
		refused = errors.Join(refused, err)
	}
	return nil, refused
}

// queues asks about queues and closes the connection.
func (b *broker) queues(ctx context.Context, names []string) ([]Queue, error) {
	found := brokers{first: b}
	defer found.close(ctx)
	defer context.AfterFunc(ctx, found.cut)()
	all := make([]Queue, len(names))
	for i, name := range names {
		q, err := b.queue(ctx, name)
		all[i] = Queue{Name: name, Messages: q.Messages, Consumers: q.Consumers}
		switch {
		case notFound(err):
			all[i].Why = "no such queue"
		case amqpconn.Refused(err, amqp.AccessRefused):
			all[i].Why = "no right to ask"
		case err != nil:
			all[i].Why = err.Error()
		}
	}
	return all, ctx.Err()
}
