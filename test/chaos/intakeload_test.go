//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	intakeExchange = "orders.in"
	intakeQueue    = "orders.intake"
	refusedQueue   = intakeQueue + ".refused"
	// redelivered is the largest number of messages that RabbitMQ delivers again after a
	// scanner died: the intake's prefetch.
	redelivered = 1000
	// notSoon is when tasks are due that wait to be cancelled or moved. Their requests may
	// have to wait in the intake's queue as long as a fault lasts.
	notSoon = 10 * time.Minute
)

// intakeClient makes the calls of a load by publishing messages to an intake. A message
// that RabbitMQ confirmed is a promise in the ledger.
type intakeClient struct {
	urls    []string
	ledger  *fleet.Ledger
	conn    *amqp.Connection
	channel *amqp.Channel
	tries   int
	// left are the tasks that are due not soon and haven't been cancelled.
	left map[fleet.Key]bool

	mu    sync.Mutex
	asked map[string]time.Time // by ID: the due time that was asked for last
}

// beginIntake starts a load that goes through the intake, and returns once tasks arrive.
func (r *harness) beginIntake() {
	r.t.Helper()
	r.await("a consumer of the intake's queue", func() bool { return r.takers() > 0 })
	r.intake = &intakeClient{urls: r.urls, ledger: r.recorder.Ledger,
		left: map[fleet.Key]bool{}, asked: map[string]time.Time{}}
	r.t.Cleanup(func() { r.intake.close() })
	r.beginWith(&load{calls: r.intake, later: notSoon, topics: []string{"orders"}, reuse: r.intake.reuse})
}

// takers returns how many consumers the intake's queue has; RabbitMQ counts the active one
// alone. It is -1 while there is no queue.
func (r *harness) takers() int {
	q, err := r.inspect(intakeQueue)
	if err != nil {
		return -1
	}
	return q.Consumers
}

// logs returns the logs of all scanners.
func (r *harness) logs() string {
	r.t.Helper()
	var all strings.Builder
	for _, s := range r.scanners {
		log, err := os.ReadFile(s.Log())
		check.OK(r.t, err)
		all.Write(log)
	}
	return all.String()
}

// inspect returns the state of a queue.
func (r *harness) inspect(queue string) (q amqp.Queue, err error) {
	for _, url := range r.urls {
		var conn *amqp.Connection
		if conn, err = amqp.Dial(url); err != nil {
			continue
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			return q, err
		}
		return ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	}
	return q, err
}

// intakeVerdict is verdict for a load that went through the intake. In the end its queues
// must be empty.
func (r *harness) intakeVerdict(fault string, allowed allowance) {
	r.t.Helper()
	r.load.stop()
	r.await("the last cancels to be published", func() bool { return r.intake.tidy(r.t.Context()) == nil })
	r.within(2*patience, "the intake's queue to be empty", func() bool {
		q, err := r.inspect(intakeQueue)
		return err == nil && q.Messages == 0
	})
	r.verdict(fault, allowed)
	for _, name := range []string{intakeQueue, refusedQueue} {
		q, err := r.inspect(name)
		if check.OK(r.t, err); q.Messages > 0 {
			r.t.Errorf("queue %s has %d messages in the end", name, q.Messages)
		}
	}
}

// asAsked returns an arrival with the due time that was asked for. The task's own may be
// later: it begins when the message was stored.
func (c *intakeClient) asAsked(d fleet.Delivery) fleet.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	if due, there := c.asked[d.MessageId]; there {
		d.Headers = maps.Clone(d.Headers)
		d.Headers["x-duefleet-due"] = due.UnixMilli()
	}
	return d
}

func (c *intakeClient) ask(id string, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[id] = due
}

// change is a message of the load, and how it enters the ledger.
type change struct {
	message amqp.Publishing
	done    func() // RabbitMQ confirmed it
	maybe   func() // RabbitMQ may have it
}

// Schedule publishes tasks. Every second one has x-delay, the others have the due time.
func (c *intakeClient) Schedule(ctx context.Context, orders ...fleet.Order) error {
	changes := make([]change, len(orders))
	for i, o := range orders {
		changes[i] = c.schedule(o)
		if delay := time.Until(o.Due).Milliseconds() + 1; i%2 == 0 && delay > 0 {
			changes[i].message.Headers = amqp.Table{"x-delay": delay}
		}
	}
	return c.apply(ctx, changes)
}

// Cancel publishes a cancel.
func (c *intakeClient) Cancel(ctx context.Context, k fleet.Key) error {
	return c.apply(ctx, []change{c.cancel(k)})
}

// Reschedule publishes a move.
func (c *intakeClient) Reschedule(ctx context.Context, k fleet.Key, due time.Time) error {
	return c.apply(ctx, []change{c.move(k, due)})
}

// reuse publishes requests about two IDs in quick succession: both are scheduled, moved, cancelled
// and scheduled. The first one is then cancelled, so it must not be stored in the end. The second
// one is due soon. Its older version has another payload, so the ledger tells them apart.
func (c *intakeClient) reuse(ctx context.Context, topic string, beat int) error {
	var changes []change
	for _, last := range []string{"undone", "redone"} {
		k, now := fleet.Key{Topic: topic, ID: fmt.Sprintf("%s-%d", last, beat)}, time.Now()
		first, again := order(topic, k.ID, now.Add(notSoon)), order(topic, k.ID, now.Add(time.Second))
		again.Payload = []byte("again")
		if last == "undone" {
			again.Due = first.Due
		}
		changes = append(changes, c.schedule(first), c.move(k, first.Due.Add(time.Second)), c.cancel(k), c.schedule(again))
		if last == "undone" {
			changes = append(changes, c.cancel(k))
		}
	}
	return c.apply(ctx, changes)
}

// apply publishes changes, and enters them into the ledger.
func (c *intakeClient) apply(ctx context.Context, changes []change) error {
	messages := make([]amqp.Publishing, len(changes))
	for i, one := range changes {
		messages[i] = one.message
	}
	confirmed, err := c.publish(ctx, messages)
	for i, one := range changes {
		if confirmed[i] {
			one.done()
		} else {
			one.maybe()
		}
	}
	return err
}

func (c *intakeClient) schedule(o fleet.Order) change {
	k := fleet.Key{Topic: o.Topic, ID: o.ID}
	enter := func(entry func(fleet.Key, time.Time, []byte)) func() {
		return func() {
			if time.Until(o.Due) > notSoon/2 {
				c.left[k] = true
			}
			entry(k, o.Due, o.Payload)
		}
	}
	c.ask(o.ID, o.Due)
	message := amqp.Publishing{MessageId: o.ID, Type: o.Topic, DeliveryMode: amqp.Persistent, Body: o.Payload,
		Headers: amqp.Table{"x-duefleet-due": o.Due.UnixMilli()}}
	return change{message, enter(c.ledger.Scheduled), enter(c.ledger.MaybeScheduled)}
}

func (c *intakeClient) cancel(k fleet.Key) change {
	return change{request(k.ID, "cancel", amqp.Table{}), func() {
		delete(c.left, k)
		c.ledger.Cancelled(k)
	}, func() { c.ledger.MaybeCancelled(k) }}
}

func (c *intakeClient) move(k fleet.Key, due time.Time) change {
	due = due.Truncate(time.Millisecond)
	c.ask(k.ID, due)
	return change{request(k.ID, "move", amqp.Table{"x-duefleet-due": due.UnixMilli()}), func() {
		if time.Until(due) < notSoon/2 {
			delete(c.left, k)
		}
		c.ledger.Rescheduled(k, due)
	}, func() { c.ledger.MaybeRescheduled(k, due) }}
}

func request(id, verb string, headers amqp.Table) amqp.Publishing {
	headers["x-duefleet-verb"] = verb
	return amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Headers: headers}
}

// tidy cancels the tasks that a failed call left. Otherwise they would stay stored.
func (c *intakeClient) tidy(ctx context.Context) error {
	for k := range c.left {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := c.Cancel(ctx, k)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// publish publishes messages and waits for their confirms. After an error the next call
// connects again.
func (c *intakeClient) publish(ctx context.Context, messages []amqp.Publishing) (confirmed []bool, err error) {
	confirmed = make([]bool, len(messages))
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.connect(); err != nil {
		return confirmed, err
	}
	confirms := make([]*amqp.DeferredConfirmation, 0, len(messages))
	for _, m := range messages {
		one, err := c.channel.PublishWithDeferredConfirm(intakeExchange, queue, false, false, m)
		if err != nil {
			return confirmed, err
		}
		confirms = append(confirms, one)
	}
	for i, one := range confirms {
		acked, err := one.WaitContext(ctx)
		if confirmed[i] = acked && err == nil; !confirmed[i] {
			return confirmed, errors.Join(fmt.Errorf("message %d isn't confirmed", i), err)
		}
	}
	return confirmed, nil
}

func (c *intakeClient) connect() error {
	if c.channel != nil {
		return nil
	}
	c.tries++
	conn, err := amqp.DialConfig(c.urls[c.tries%len(c.urls)], amqp.Config{Dial: amqp.DefaultDial(2 * time.Second)})
	if err != nil {
		return err
	}
	c.conn = conn
	if c.channel, err = conn.Channel(); err != nil {
		return err
	}
	return c.channel.Confirm(false)
}

func (c *intakeClient) close() {
	if c.conn != nil {
		go func(conn *amqp.Connection) { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }(c.conn)
	}
	c.conn, c.channel = nil, nil
}
