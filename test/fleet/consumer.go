package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// The consumer acknowledges after ackEvery messages, or after ackWithin.
	// Acknowledging each message by itself costs the broker much.
	ackEvery  = 64
	ackWithin = 20 * time.Millisecond
	// redialAfter is the pause before the consumer connects again.
	redialAfter = 50 * time.Millisecond
)

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	// URL is the vhost's URL, or several separated by commas that are tried in turn.
	// Queue is a queue in it, and may not exist at first. Both are required.
	URL, Queue string
	// Prefetch is how many messages may be unacknowledged. Defaults to 1000.
	Prefetch int
	// Handle is called for every message, one at a time, before the message is
	// acknowledged. Required.
	Handle func(Delivery)
}

// Delivery is one message with all of its properties.
type Delivery struct {
	amqp.Delivery
	// At is the time of arrival, by this machine's clock.
	At time.Time
	// Queue is the queue that delivered it.
	Queue string
}

// Consumer consumes one queue and reconnects after a lost connection. The broker then
// sends unacknowledged messages again, marked as redelivered.
type Consumer struct {
	cfg   ConsumerConfig
	ready chan struct{}
	once  sync.Once
}

// NewConsumer returns a consumer that does nothing until Run.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if cfg.URL == "" || cfg.Queue == "" || cfg.Handle == nil {
		return nil, errors.New("new consumer: URL, Queue and Handle must be given")
	}
	if cfg.Prefetch == 0 {
		cfg.Prefetch = 1000
	}
	return &Consumer{cfg: cfg, ready: make(chan struct{})}, nil
}

// Ready is closed once the consumer receives from the queue for the first time.
func (c *Consumer) Ready() <-chan struct{} { return c.ready }

// Run consumes until ctx ends, and then returns nil. If the queue is missing or the
// broker is down, it tries again.
func (c *Consumer) Run(ctx context.Context) error {
	urls := strings.Split(c.cfg.URL, ",")
	for try := 0; ; try++ {
		err := c.session(ctx, urls[try%len(urls)])
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(redialAfter):
		}
	}
}

// session consumes over one connection until the connection is lost.
func (c *Consumer) session(ctx context.Context, url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(c.cfg.Prefetch, 0, false); err != nil {
		return err
	}
	messages, err := ch.ConsumeWithContext(ctx, c.cfg.Queue, "", false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume %s: %w", c.cfg.Queue, err)
	}
	c.once.Do(func() { close(c.ready) })
	return c.receive(ctx, messages)
}

// receive acknowledges in batches: after ackEvery messages, or after ackWithin if fewer
// wait.
func (c *Consumer) receive(ctx context.Context, messages <-chan amqp.Delivery) error {
	tick := time.NewTicker(ackWithin)
	defer tick.Stop()
	var last amqp.Delivery
	waiting := 0
	ack := func() error {
		if waiting == 0 {
			return nil
		}
		waiting = 0
		return last.Ack(true)
	}
	for {
		select {
		case <-ctx.Done():
			return ack()
		case <-tick.C:
			if err := ack(); err != nil {
				return err
			}
		case m, ok := <-messages:
			if !ok {
				return errors.Join(ack(), amqp.ErrClosed)
			}
			c.cfg.Handle(Delivery{Delivery: m, At: time.Now(), Queue: c.cfg.Queue})
			last, waiting = m, waiting+1
			if waiting < ackEvery {
				continue
			}
			if err := ack(); err != nil {
				return err
			}
		}
	}
}
