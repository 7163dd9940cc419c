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
	// ackEvery and ackWithin bound how many deliveries wait for their
	// acknowledgement, and how long: one at a time costs the broker much.
	ackEvery  = 64
	ackWithin = 20 * time.Millisecond
	// redialAfter is the pause before a lost connection is made again.
	redialAfter = 50 * time.Millisecond
)

// ConsumerConfig says what to consume.
type ConsumerConfig struct {
	// URL of the vhost, or several with commas between that are tried in turn,
	// and the Queue in it. Required. The queue need not exist yet.
	URL, Queue string
	// Prefetch is how many messages may be unacknowledged. Defaults to 1000.
	Prefetch int
	// Handle is called for every message, one at a time, before it is
	// acknowledged. Required.
	Handle func(Delivery)
}

// Delivery is one message as it arrived, with all of its properties.
type Delivery struct {
	amqp.Delivery
	// At is when it arrived, by this machine's clock.
	At time.Time
	// Queue it came from.
	Queue string
}

// Consumer consumes one queue, over lost connections too. What it had not
// acknowledged then comes again, marked as redelivered by the broker.
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

// Ready is closed once the queue was first consumed from.
func (c *Consumer) Ready() <-chan struct{} { return c.ready }

// Run consumes until ctx ends, which is no error. Where the queue is missing or
// the broker gone it tries again.
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

// session lasts as long as one connection.
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

// receive acknowledges in batches: at every ackEvery messages, and what is left
// after ackWithin.
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
