package forward

import (
	"context"
	"errors"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

func dial(ctx context.Context, s *amqpconn.Server, cfg Config) (*conn, error) {
	c := &conn{server: s, answer: cfg.pace.answer, routes: make(chan Route, 1)}
	opened, err := s.Dial(ctx, amqpconn.Config{Product: appID, Name: cfg.Name, Timeout: cfg.ConnectTimeout,
		Heartbeat: cfg.Heartbeat, Transport: func(stream, raw net.Conn) net.Conn {
			c.wire = newWire(stream, raw, cfg.WriteTimeout)
			return c.wire
		}})
	if err != nil {
		if answer := new(amqp.Error); errors.As(err, &answer) {
			err = fmt.Errorf("open %s: %w", s.Addr, brokerError{err})
		}
		return nil, err
	}
	c.amqp, c.frame = opened, opened.Config.FrameSize
	c.closes = opened.NotifyClose(make(chan *amqp.Error, 1))
	c.blocking = opened.NotifyBlocked(make(chan amqp.Blocking, blockingBuffer))
	return c, nil
}
