package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
)

const (
	verifyPrefetch = 500
	// verifyQueueLife is how long RabbitMQ keeps the queue without a consumer.
	verifyQueueLife  = time.Hour
	verifyReconnect  = 250 * time.Millisecond
	verifyCloseLimit = 2 * time.Second
)

// verifyQueue is the queue of one run: it gets the messages of this run alone.
type verifyQueue struct {
	name     string
	exchange verifyExchange
	shared   bool
	urls     func() []string
	secure   func() *tls.Config
	arrived  func(amqp.Delivery)

	away  atomic.Bool
	lost  int // connections
	ended *verifySession
}

// verifySession is one connection that consumes from the queue.
type verifySession struct {
	conn       *amqp.Connection
	deliveries <-chan amqp.Delivery
	closed     chan *amqp.Error
}

func newVerifyQueue(conn *connection, flags *verifyFlags, exchange verifyExchange, name string,
	arrived func(amqp.Delivery)) (*verifyQueue, error) {
	settings := conn.settings.RabbitMQ
	if flags.rabbitmqURL != "" {
		settings.URLs, settings.URLsFile = []string{flags.rabbitmqURL}, ""
	}
	urls, secure, err := settings.Fresh(nil)
	if err != nil {
		return nil, err
	}
	return &verifyQueue{
		name: name, exchange: exchange, shared: flags.shared, urls: urls, secure: secure, arrived: arrived,
	}, nil
}

// begin checks the exchange, and makes the queue. Errors say what to do.
func (q *verifyQueue) begin(ctx context.Context) (*verifySession, error) {
	conn, err := q.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err = q.checkExchange(conn); err == nil {
		var s *verifySession
		if s, err = q.consume(conn); err == nil {
			return s, nil
		}
	}
	_ = conn.CloseDeadline(time.Now().Add(verifyCloseLimit))
	return nil, err
}

// dial tries the URLs in turn.
func (q *verifyQueue) dial(ctx context.Context) (conn *amqp.Connection, err error) {
	for _, url := range q.urls() {
		server, parseErr := amqpconn.Parse(url, q.secure())
		if parseErr != nil {
			return nil, parseErr
		}
		conn, err = server.Dial(ctx, amqpconn.Config{Product: "duefleet", Name: "producer verify"})
		if err == nil {
			return conn, nil
		}
		advice := config.Advice("rabbitmq", err.Error())
		err = advisedError{fmt.Sprintf("connect to RabbitMQ at %s: %v%s", server.Addr, err, advice)}
	}
	return nil, err
}

// advisedError is an error that says itself what to do: advice, which is about Redis, adds
// nothing to it.
type advisedError struct{ text string }

func (e advisedError) Error() string { return e.text }

// checkExchange checks that the exchange exists and doesn't send verify's messages to
// other queues.
func (q *verifyQueue) checkExchange(conn *amqp.Connection) error {
	name := q.exchange.name
	if name == "" {
		return nil
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return advisedError{fmt.Sprintf("check exchange %q: %v%s", name, err, config.Advice("rabbitmq", err.Error()))}
	}
	kind, err := exchangeKind(ch, name)
	if err != nil {
		return err
	}
	if kind == "" {
		kind = q.exchange.kind
	}
	return q.exchange.private(kind, q.shared)
}

// exchangeKind returns the type of an exchange that exists, "" if the user may not know it.
// AMQP tells the type only to a client that declares the exchange with another one.
func exchangeKind(ch *amqp.Channel, name string) (string, error) {
	err := ch.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil)
	if err == nil {
		return amqp.ExchangeDirect, ch.Close()
	}
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		return "", err
	}
	if _, after, ok := strings.Cut(refused.Reason, "inequivalent arg 'type' "); ok {
		_, kind, _ := strings.Cut(after, "current is '")
		kind, _, _ = strings.Cut(kind, "'")
		return kind, nil
	}
	if refused.Code == amqp.PreconditionFailed {
		return amqp.ExchangeDirect, nil // another argument differs, and the type is compared first
	}
	return "", nil
}

// consume makes the queue, binds it, and begins to consume.
func (q *verifyQueue) consume(conn *amqp.Connection) (*verifySession, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	_, err = ch.QueueDeclare(q.name, true, false, false, false, amqp.Table{
		"x-queue-type": q.exchange.queueType, "x-expires": verifyQueueLife.Milliseconds(),
	})
	if err != nil {
		return nil, q.refused("make the queue", err)
	}
	if q.exchange.name != "" {
		if err := ch.QueueBind(q.name, q.name, q.exchange.name, false, nil); err != nil {
			return nil, q.refused(fmt.Sprintf("bind the queue to exchange %q", q.exchange.name), err)
		}
	}
	if err := ch.Qos(verifyPrefetch, 0, false); err != nil {
		return nil, err
	}
	s := &verifySession{conn: conn, closed: ch.NotifyClose(make(chan *amqp.Error, 1))}
	if s.deliveries, err = ch.Consume(q.name, "", false, false, false, false, nil); err != nil {
		return nil, q.refused("consume from the queue", err)
	}
	return s, nil
}

func (q *verifyQueue) refused(what string, err error) error {
	advice := ""
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.AccessRefused {
		advice = "; the user of RabbitMQ needs the rights to configure, write and read queues named duefleet.verify.*, " +
			"and to read the exchange"
	}
	return advisedError{fmt.Sprintf("%s %s: %v%s", what, q.name, err, advice)}
}

// run passes on deliveries until ctx ends. It connects again after a lost connection.
func (q *verifyQueue) run(ctx context.Context, s *verifySession) {
	for {
		if s != nil && q.receive(ctx, s) {
			q.ended = s
			return
		}
		if s != nil {
			q.lost++
			q.away.Store(true)
			_ = s.conn.CloseDeadline(time.Now().Add(verifyCloseLimit))
			s = nil
		}
		if conn, err := q.dial(ctx); err == nil {
			if s, err = q.consume(conn); err != nil {
				_ = conn.CloseDeadline(time.Now().Add(verifyCloseLimit))
				s = nil
			}
		}
		if s != nil {
			q.away.Store(false)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(verifyReconnect):
		}
	}
}

// receive passes on deliveries until ctx ends. It returns false if the channel ended.
func (q *verifyQueue) receive(ctx context.Context, s *verifySession) bool {
	unacked := 0
	for {
		select {
		case <-ctx.Done():
			return true
		case d, open := <-s.deliveries:
			if !open {
				return false
			}
			q.arrived(d)
			if unacked++; unacked < verifyPrefetch/5 && len(s.deliveries) > 0 {
				continue
			}
			unacked = 0
			if d.Ack(true) != nil {
				return false
			}
		}
	}
}

// remove deletes the queue and closes the connection. It returns what the operator must
// know, "" for nothing.
func (q *verifyQueue) remove(ctx context.Context) (left string) {
	var conn *amqp.Connection
	var err error
	if q.ended != nil {
		conn = q.ended.conn
	}
	for range 2 { // the first connection may have ended meanwhile
		if conn == nil || conn.IsClosed() {
			call, cancel := context.WithTimeout(ctx, verifyCall)
			conn, err = q.dial(call)
			cancel()
		}
		if err == nil {
			if err = deleteQueue(conn, q.name); err == nil {
				return ""
			}
		}
		conn = nil
	}
	return fmt.Sprintf("queue %s remains (%v); RabbitMQ deletes it after an hour", q.name, err)
}

func deleteQueue(conn *amqp.Connection, name string) error {
	defer func() { _ = conn.CloseDeadline(time.Now().Add(verifyCloseLimit)) }()
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(name, false, false, false)
	}
	return err
}
