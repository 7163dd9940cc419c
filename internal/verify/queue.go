package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/retry"
)

const (
	prefetch = 500
	// queueLife is how long RabbitMQ keeps the queue without a consumer.
	queueLife  = time.Hour
	reconnect  = 250 * time.Millisecond
	closeLimit = 2 * time.Second
)

// queue is the queue of one run: it gets the messages of this run alone.
type queue struct {
	name     string
	exchange exchange
	shared   bool
	urls     func() []string
	secure   func() *tls.Config
	arrived  func(amqp.Delivery)

	conn       *amqp.Connection // the last one
	deliveries <-chan amqp.Delivery
	away       bool // there is no connection
	lost       int  // connections
}

// open connects, checks the exchange, makes the queue, and begins to consume. Errors say what
// to do.
func (q *queue) open(ctx context.Context) error {
	conn, err := q.dial(ctx)
	if err != nil {
		return err
	}
	q.conn = conn
	if err = q.exchange.check(conn, q.shared); err == nil {
		err = q.consume()
	}
	if err != nil {
		q.close()
	}
	return err
}

// dial tries the URLs in turn.
func (q *queue) dial(ctx context.Context) (conn *amqp.Connection, err error) {
	for _, url := range q.urls() {
		server, parseErr := amqpconn.Parse(url, q.secure())
		if parseErr != nil {
			return nil, fmt.Errorf("read URL of RabbitMQ: %w", parseErr)
		}
		conn, err = server.Dial(ctx, amqpconn.Config{Product: "duefleet", Name: "producer verify"})
		if err == nil {
			return conn, nil
		}
		err = refused("connect to RabbitMQ at "+server.Addr, err)
	}
	return nil, err
}

// refused says what to do about an error of RabbitMQ.
func refused(operation string, err error) error {
	return AdvisedError(operation + ": " + connect.Advised("rabbitmq", err))
}

// consume makes the queue, binds it, and begins to consume.
func (q *queue) consume() error {
	ch, err := q.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	_, err = ch.QueueDeclare(q.name, true, false, false, false, amqp.Table{
		"x-queue-type": q.exchange.queueType, "x-expires": queueLife.Milliseconds(),
	})
	if err == nil && q.exchange.name != "" {
		err = ch.QueueBind(q.name, q.name, q.exchange.name, false, nil)
	}
	if err == nil {
		err = ch.Qos(prefetch, 0, false)
	}
	if err == nil {
		q.deliveries, err = ch.Consume(q.name, "", false, false, false, false, nil)
	}
	operation := fmt.Sprintf("consume from queue %s at exchange %q", q.name, q.exchange.name)
	var refusal *amqp.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == amqp.AccessRefused:
		return AdvisedError(fmt.Sprintf("%s: %v; the user of RabbitMQ needs the rights to configure, write and read queues "+
			"named duefleet.verify.*, and to read the exchange", operation, err))
	case err != nil:
		return refused(operation, err)
	}
	return nil
}

// run passes on deliveries until ctx ends. It connects again after a lost connection.
func (q *queue) run(ctx context.Context) {
	for !q.receive(ctx) {
		q.lost++
		q.close()
		q.away = true
		for q.open(ctx) != nil {
			if !retry.Sleep(ctx, reconnect) {
				return
			}
		}
		q.away = false
	}
}

// receive passes on deliveries until ctx ends. It returns false if the channel ended.
func (q *queue) receive(ctx context.Context) bool {
	unacked := 0
	for {
		select {
		case <-ctx.Done():
			return true
		case d, open := <-q.deliveries:
			if !open {
				return false
			}
			q.arrived(d)
			if unacked++; unacked < prefetch/5 && len(q.deliveries) > 0 {
				continue
			}
			unacked = 0
			if d.Ack(true) != nil {
				return false
			}
		}
	}
}

// remove deletes the queue by a new connection. It returns what the operator must know, ""
// for nothing.
func (q *queue) remove(ctx context.Context) (left string) {
	q.close()
	conn, err := q.dial(ctx)
	if err == nil {
		q.conn = conn
		defer q.close()
		var ch *amqp.Channel
		if ch, err = conn.Channel(); err == nil {
			_, err = ch.QueueDelete(q.name, false, false, false)
		}
	}
	if err != nil {
		return fmt.Sprintf("queue %s remains (%v); RabbitMQ deletes it after an hour", q.name, err)
	}
	return ""
}

// close closes the connection, which may have ended.
func (q *queue) close() { _ = q.conn.CloseDeadline(time.Now().Add(closeLimit)) }
