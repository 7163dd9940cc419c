package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestStoppingLetsRunningHandlersFinishAndRequeuesTheRest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeOrders()
	var seen log
	began, finish := make(chan struct{}, 5), make(chan struct{})
	c := w.consume(Config{Concurrency: 1, Prefetch: 10, Handler: func(ctx context.Context, d task.Delivery) error {
		seen.add(d)
		began <- struct{}{}
		hold(t, finish)
		return ctx.Err()
	}})
	for i := range 5 {
		w.send(message(func(p *amqp.Publishing) { p.MessageId = fmt.Sprint(i) }))
	}
	check.Receive(t, "the first is being handled", began)
	stopped := make(chan struct{})
	go func() {
		c.stop()
		close(stopped)
	}()
	check.Until(t, "the consumer takes no more", func() bool {
		q, err := w.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		check.OK(w.t, err)
		return q.Consumers == 0
	})
	close(finish)
	check.Closed(t, "the consumer stops", stopped)
	if counted(c, done) != 1 || len(seen.all()) != 1 {
		t.Errorf("handled %d, done %v", len(seen.all()), counted(c, done))
	}
	check.Until(t, "the rest is in the queue", func() bool { return w.waiting(queue) == 4 })
}

// TestStoppingLosesNoAck: a hundred handlers end at once after the stop, and RabbitMQ tells a
// quorum queue only 32 acks before the queue answers. The first delivery is acked last, so that
// each of the others has an ack of its own.
func TestStoppingLosesNoAck(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeOrders()
	const queue, n = "many", 100
	_, err := w.channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	check.OK(w.t, err)
	send := func(id string) {
		check.OK(w.t, w.channel.PublishWithContext(t.Context(), "", queue, false, false,
			message(func(p *amqp.Publishing) { p.MessageId = id })))
	}
	for i := range n {
		send(fmt.Sprint(i))
	}
	began, finish, first := make(chan struct{}, n), make(chan struct{}), make(chan struct{})
	c := w.consume(Config{Queue: queue, Concurrency: n, Handler: func(_ context.Context, d task.Delivery) error {
		began <- struct{}{}
		if hold(t, finish); d.ID == "0" {
			hold(t, first)
		}
		return nil
	}})
	for range n {
		check.Receive(t, "all are being handled", began)
	}
	stopped := make(chan struct{})
	go func() {
		c.stop()
		close(stopped)
	}()
	close(finish)
	check.Count(t, "handled", n-1, func() int { return int(counted(c, done)) })
	close(first)
	check.Closed(t, "the consumer stops", stopped)
	send("last")
	check.Until(t, "the last", func() bool {
		d, there, err := w.channel.Get(queue, true)
		check.OK(w.t, err)
		if there && d.MessageId != "last" {
			t.Errorf("%s comes again", d.MessageId)
		}
		return there && d.MessageId == "last"
	})
}

func TestAHandlerThatOutlastsTheStopIsCutShortAndItsTaskRequeued(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeOrders()
	began := make(chan struct{}, 10)
	c := w.consume(Config{StopTimeout: 100 * time.Millisecond, Handler: func(ctx context.Context, _ task.Delivery) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	w.send(message(nil))
	check.Receive(t, "it is being handled", began)
	c.stop()
	check.Until(t, "the task is in the queue", func() bool { return w.waiting(queue) == 1 })
	check.Until(t, "the handler that was cut short is counted", func() bool { return counted(c, requeued) > 0 })
	if counted(c, retried) != 0 || counted(c, requeued) != 1 {
		t.Errorf("retried %v, requeued %v", counted(c, retried), counted(c, requeued))
	}
}

func TestTheConsumerComesBackWithItsBroker(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	w := newFixture(t)
	w.makeOrders()
	node, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir()})
	check.OK(w.t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	send := func(id string) {
		conn, err := amqp.Dial(node.URL("/"))
		check.OK(w.t, err)
		defer conn.Close()
		channel, err := conn.Channel()
		check.OK(w.t, err)
		_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
		check.OK(w.t, err)
		check.OK(w.t, channel.PublishWithContext(t.Context(), "", queue, false, false,
			message(func(p *amqp.Publishing) { p.MessageId = id })))
	}
	finish := make(chan struct{})
	began := make(chan struct{}, 10)
	// The queue doesn't exist yet, and one URL is dead.
	c := w.consume(Config{URLs: []string{"amqp://127.0.0.1:1/", node.URL("/")},
		Handler: func(_ context.Context, d task.Delivery) error {
			began <- struct{}{}
			if d.ID == "a" {
				hold(t, finish)
			}
			return nil
		}})
	send("a")
	check.Receive(t, "a is being handled", began)
	check.OK(w.t, node.Kill())
	close(finish)
	check.Until(t, "the running handler is done", func() bool { return counted(c, done) == 1 })
	check.OK(w.t, node.Restart(t.Context()))
	send("b")
	check.Until(t, "the consumer goes on", func() bool { return counted(c, done) == 2 })
}
