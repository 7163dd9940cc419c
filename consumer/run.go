package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
)

// stopGrace is how long handlers may take to return after their context was cancelled.
const stopGrace = time.Second

// Run consumes until ctx ends, and then stops and returns nil. While it stops, it takes no
// new deliveries and waits up to StopTimeout for the running handlers. Then it cancels the
// contexts of those that still run, and requeues unhandled deliveries. While RabbitMQ is
// away, Run tries all URLs in turn. Call it once.
//
// Run returns an error if RabbitMQ refuses the user, the password, the vhost or the right
// to read the queue. It also does if the queue doesn't exist for QueueTimeout. Once it has consumed,
// it retries after these errors too.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("consumer: Run was called before; a Consumer runs once, make another by New")
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go c.reachRedis(ctx)
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	feed := make(chan *session)
	var workers sync.WaitGroup
	for range c.cfg.Concurrency {
		c.start(ctx, work, feed, &workers)
	}
	last, failure := c.supervise(ctx, feed)
	end()
	deadline := time.Now().Add(c.cfg.StopTimeout)
	if last != nil { // keep it open while handlers may still ack
		last.stop(max(c.cfg.StopTimeout, closeTimeout))
	}
	if !amqpconn.Within(time.Until(deadline), workers.Wait) {
		n, tasks := c.busy.names()
		c.cfg.Log.WarnContext(ctx, "deliveries are cut short and requeued", "after", c.cfg.StopTimeout, "running_handlers", n,
			"tasks", tasks)
		abandon()
		amqpconn.Within(stopGrace, workers.Wait)
	}
	if last != nil { // the broker requeues unanswered deliveries
		retry.Sleep(work, min(last.acks.rest(), time.Until(deadline)))
		last.conn.Close(max(time.Until(deadline), closeTimeout))
	}
	return errors.Join(failure, c.close())
}

// reachRedis logs the address and prefix of Redis if Redis doesn't answer at the start.
func (c *Consumer) reachRedis(ctx context.Context) {
	if _, err := c.store.Now(ctx); err != nil && ctx.Err() == nil {
		c.unstored.Log(ctx, append(c.place(), "operation", "start", "error", err)...)
	}
}

// holdFor is how long a delivery waits if Redis refuses a call for it. Then it is requeued
// and its handler runs again. It must be below half an hour: RabbitMQ closes the channel
// of a delivery that isn't acked for that long.
const holdFor = 10 * time.Minute

// supervise keeps a session open until ctx ends, and returns the session that is open
// then. It returns an error if starting.failed does.
func (c *Consumer) supervise(ctx context.Context, feed chan<- *session) (*session, error) {
	outage := amqpconn.NewOutage()
	start := starting{c: c, began: time.Now()}
	for turn := 0; ; turn++ {
		s, err := c.open(ctx, c.cfg.URLs[turn%len(c.cfg.URLs)])
		if err == nil {
			start.over = true
			if lasted := outage.Over(); lasted > 0 {
				c.cfg.Log.InfoContext(ctx, "rabbitmq is available again", "queue", c.cfg.Queue, "outage", lasted)
			}
			if err = c.serve(ctx, s, feed); err == nil {
				return s, nil
			}
			s.conn.Close(closeTimeout)
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if err := start.failed(err); err != nil {
			return nil, err
		}
		if outage.Failed() {
			c.cfg.Log.WarnContext(ctx, "can't consume from rabbitmq, retrying", "queue", c.cfg.Queue, "error", err)
		}
		retry.Sleep(ctx, outage.Pause())
	}
}

// serve offers the session to idle workers until ctx ends. If the session is lost first,
// it returns the reason.
func (c *Consumer) serve(ctx context.Context, s *session, feed chan<- *session) error {
	c.metrics.connected.Inc()
	defer c.metrics.connected.Dec()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.lost:
			return err
		case feed <- s: // to an idle worker
		}
	}
}
