package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

const closeTimeout = 2 * time.Second

// session is one connection with a consumer on it.
type session struct {
	conn       *amqpconn.Conn
	channel    *amqp.Channel
	tag        string
	deliveries <-chan amqp.Delivery
	acks       acks
	lost       chan error
}

// open connects and begins to consume.
func (c *Consumer) open(ctx context.Context, url string) (*session, error) {
	s := &session{tag: c.cfg.Name, lost: make(chan error, 1)}
	server, err := amqpconn.Parse(url, c.cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if s.conn, err = server.Connect(ctx, amqpconn.Config{Name: c.cfg.Name}); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := s.consume(c.cfg.Queue, c.cfg.Prefetch); err != nil {
		s.conn.Close(closeTimeout)
		return nil, err
	}
	return s, nil
}

func (s *session) consume(queue string, prefetch int) (err error) {
	if s.channel, err = s.conn.AMQP.Channel(); err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	s.acks.channel = s.channel
	if err := s.channel.Qos(prefetch, 0, false); err != nil {
		return fmt.Errorf("set prefetch: %w", err)
	}
	closed := s.channel.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := s.channel.NotifyCancel(make(chan string, 1))
	if s.deliveries, err = s.channel.Consume(queue, s.tag, false, false, false, false, nil); err != nil {
		return fmt.Errorf("consume from %s: %w", queue, err)
	}
	go func() {
		select {
		case e := <-closed:
			if e != nil {
				s.lost <- e
				return
			}
			s.lost <- errors.New("the channel was closed")
		case <-cancelled:
			s.lost <- errors.New("the queue was deleted, or its node is gone")
		}
	}()
	return nil
}

// stop cancels the consumer. Deliveries that the broker sent before still arrive, then
// the channel of deliveries closes. If the broker doesn't answer within limit, stop cuts
// the connection, and the broker requeues deliveries that handlers still have.
func (s *session) stop(limit time.Duration) {
	s.conn.Bounded(limit, func() { _ = s.channel.Cancel(s.tag, false) })
}
