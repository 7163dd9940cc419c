package doctor

import (
	"context"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
)

// examineIntake checks the exchanges and queues of a topic's intake.
func (b *broker) examineIntake(ctx context.Context, r *report, name string, t config.Topic, running bool,
	alarm string) {
	if !t.TakesIn() {
		return
	}
	b.examineIntakeExchange(ctx, r, name, t, running)
	if b.examineIntakeQueue(ctx, r, name, t, running) {
		b.examineIntakeArguments(ctx, r, name, t)
	}
	b.examineRefused(ctx, r, name, t, running)
	if alarm != "" {
		r.unchecked("topic "+name+" intake rights", "RabbitMQ blocks publishers, so publishing can't be tried")
		return
	}
	b.examineIntakeRights(ctx, r, name, t)
}

// examineIntakeExchange checks that the exchange exists and has the type of the settings.
// An exchange keeps its type, and AMQP reports it only as the refusal of another one.
func (b *broker) examineIntakeExchange(ctx context.Context, r *report, name string, t config.Topic, running bool) {
	check, in := "topic "+name+" intake exchange", t.Intake
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(in.Exchange, in.Type, true, false, false, false, nil)
	})
	if err == nil { // it is there, so this makes nothing
		err = b.ask(ctx, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(in.Exchange, in.Type, true, false, false, false, nil)
		})
	}
	switch {
	case err == nil:
		r.ok(check, "exchange %s is there, of type %s", in.Exchange, in.Type)
	case b.madeLater(r, check, "exchange "+in.Exchange, t, running, err):
	case notFound(err):
		r.fail(check, b.declare("exchange", "name="+in.Exchange+" type="+in.Type), "%v", err)
	case amqpconn.Refused(err, amqp.PreconditionFailed):
		differentExchange(r, check, t, err)
	case amqpconn.Refused(err, amqp.AccessRefused):
		r.unchecked(check, "exchange %s is there; user %s may not declare it, so its type isn't known", in.Exchange,
			b.uri.Username)
	default:
		b.refuse(ctx, r, check, "exchange "+in.Exchange, err)
	}
}

// differentExchange reports what differs in an exchange that is there. If scanners don't
// declare it, only its type matters.
func differentExchange(r *report, check string, t config.Topic, err error) {
	in := t.Intake
	d, _ := differenceIn(err)
	switch {
	case d.name == "" || d.name == "type":
		r.fail(check, "set intake.type to the exchange's own type, or intake.exchange to another name",
			"exchange %s is there and differs from the settings: %v", in.Exchange, err)
	case t.Declare == nil:
		r.ok(check, "exchange %s is there, of type %s", in.Exchange, in.Type)
	default:
		fix := "delete exchange " + in.Exchange + " once nobody publishes to it, so that a scanner makes it again, or set " +
			"intake.exchange to another name"
		if d.name == "alternate-exchange" {
			fix += "; a policy can set its alternate exchange"
		}
		r.fail(check, fix, "exchange %s is there with another %s than scanners declare: %v", in.Exchange, d.name, err)
	}
}

// examineIntakeQueue returns whether the queue is there.
func (b *broker) examineIntakeQueue(ctx context.Context, r *report, name string, t config.Topic, running bool) bool {
	check, in := "topic "+name+" intake queue", t.Intake
	found, err := b.queue(ctx, in.Queue)
	switch {
	case err == nil && found.Consumers == 0 && t.Paused:
		r.info(check, "the topic is paused: queue %s keeps %s", in.Queue, messages(found.Messages))
	case err == nil && found.Consumers == 0:
		r.warn(check, "scanner run, or the reason in scanner status --topic "+name,
			"queue %s is there, holds %s, and no scanner consumes from it", in.Queue, messages(found.Messages))
	case err == nil:
		r.ok(check, "queue %s is there, with %s, and a scanner consumes from it", in.Queue, messages(found.Messages))
	case b.madeLater(r, check, "queue "+in.Queue, t, running, err):
	case notFound(err):
		r.fail(check, b.declare("queue", fmt.Sprintf(`name=%s arguments='%s'`, in.Queue, intakeArguments(*in))), "%v", err)
	default:
		b.refuse(ctx, r, check, "queue "+in.Queue, err)
	}
	return err == nil
}

// examineRefused reports whether messages that no task could be made of wait.
func (b *broker) examineRefused(ctx context.Context, r *report, name string, t config.Topic, running bool) {
	check, queue := "topic "+name+" intake refused", t.Intake.Refused()
	found, err := b.queue(ctx, queue)
	switch {
	case err == nil && found.Messages > 0:
		r.warn(check, "read their header x-duefleet-refused, fix the clients, then publish the messages again or purge "+
			queue,
			"queue %s holds %s that broke a rule", queue, messages(found.Messages))
	case err == nil:
		r.ok(check, "queue %s is there and empty", queue)
	case b.madeLater(r, check, "queue "+queue, t, running, err):
	case notFound(err):
		r.fail(check, fmt.Sprintf("%s; then %s; then bind them", b.declare("exchange", "name="+queue+" type=fanout"),
			b.declare("queue", "name="+queue+` arguments='{"x-queue-type":"quorum"}'`)), "%v", err)
	default:
		b.refuse(ctx, r, check, "queue "+queue, err)
	}
}

// examineIntakeRights tries to publish refused messages and answers, in transactions that
// it doesn't commit.
func (b *broker) examineIntakeRights(ctx context.Context, r *report, name string, t config.Topic) {
	check := "topic " + name + " intake rights"
	var denied []string
	for _, to := range []struct{ exchange, what string }{
		{t.Intake.Refused(), "refused messages to exchange " + t.Intake.Refused()},
		{"", "answers to AMQP's default exchange"},
	} {
		err := b.tryPublish(ctx, to.exchange, nil)
		if why := unanswered(ctx, err); why != "" {
			r.unchecked(check, "%s", why)
			return
		}
		if amqpconn.Refused(err, amqp.AccessRefused) {
			denied = append(denied, to.what)
		}
	}
	if len(denied) == 0 {
		r.ok(check, "user %s may publish refused messages and answers", b.uri.Username)
		return
	}
	r.fail(check, fmt.Sprintf("let user %s write to %s and amq.default in vhost %s: see \"Rights in RabbitMQ\" in "+
		"docs/deploy.md",
		b.uri.Username, t.Intake.Refused(), b.uri.Vhost), "user %s may not publish %s", b.uri.Username,
		strings.Join(denied, " and "))
}

// madeLater reports that the first scanner will make what is missing, and returns whether
// that is so.
func (b *broker) madeLater(r *report, check, what string, t config.Topic, running bool, err error) bool {
	if !notFound(err) || t.Declare == nil || running {
		return false
	}
	r.info(check, "%s isn't there; the first scanner will make it", what)
	return true
}

// examineConflicts reports circles of topics, and queues of an intake that other topics use.
func examineConflicts(r *report, docs map[string]config.Topic) {
	for _, c := range config.Conflicts(docs) {
		r.fail("topic "+c.Topic+" "+strings.Replace(c.Key, ".", " ", 1), "set "+c.Key+" of one of the topics to another name",
			"%s", c.Problem)
	}
}
