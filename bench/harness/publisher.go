package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
)

// Publisher publishes persistent messages and waits for their confirms. The peers'
// adapters share it. It is safe for concurrent use.
type Publisher struct {
	conn     *amqp.Connection
	exchange string
	mu       sync.Mutex
	channel  *amqp.Channel
}

// NewPublisher connects to RabbitMQ. exchange is the exchange of a queue from Run.Queue.
func NewPublisher(url, exchange string) (*Publisher, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Publisher{conn: conn, exchange: exchange, channel: ch}, nil
}

// Close closes the connection.
func (p *Publisher) Close() error { return p.conn.Close() }

// Message returns the message that every peer publishes.
func Message(id string, payload []byte) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: id, Body: payload}
}

// Publish returns when the broker has confirmed all messages.
func (p *Publisher) Publish(ctx context.Context, messages ...amqp.Publishing) error {
	confirms, err := p.write(ctx, messages)
	if err != nil {
		return err
	}
	for _, c := range confirms {
		acked, err := c.WaitContext(ctx)
		if err != nil {
			return err
		}
		if !acked {
			return errors.New("publish: the broker refused a message")
		}
	}
	return nil
}

func (p *Publisher) write(ctx context.Context, messages []amqp.Publishing) ([]*amqp.DeferredConfirmation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	for i, m := range messages {
		c, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, p.exchange, p.exchange, true, false, m)
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		confirms[i] = c
	}
	return confirms, nil
}

// bareWindow equals the default window of a topic.
const bareWindow = 2000

// Shape is the form of a bare publisher's messages.
type Shape int

const (
	// Same messages have the same properties as duefleet's, and are mandatory.
	Same Shape = iota
	// Naked messages have only a payload and a delivery mode.
	Naked
)

// Bare publishes n messages over one connection, with only the AMQP library and at most
// 2,000 unconfirmed messages. It returns the confirmed messages per second. No publisher
// to such a queue should be faster, so this is the limit to compare with.
func (r *Run) Bare(ctx context.Context, queueType string, n int, shape Shape) (rate float64, err error) {
	queue, err := r.Queue("bare-"+queueType, queueType)
	if err != nil {
		return 0, err
	}
	p, err := NewPublisher(r.URL(), queue)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	begin := time.Now()
	if err := bare(ctx, p.channel, queue, n, shape); err != nil {
		return 0, err
	}
	rate = float64(n) / time.Since(begin).Seconds()
	return rate, r.DeleteQueue(queue)
}

// bare publishes n messages that differ only in their message-id.
func bare(ctx context.Context, ch *amqp.Channel, queue string, n int, shape Shape) error {
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, bareWindow))
	room, refused := make(chan struct{}, bareWindow), make(chan int, 1)
	go func() {
		nacks := 0
		for range n {
			if c := <-confirms; !c.Ack {
				nacks++
			}
			<-room
		}
		refused <- nacks
	}()
	template := NewTask(0, time.Now())
	m := forward.Publishing(task.Task{
		Topic: topicName, ID: template.ID(), Due: template.Due, Scheduled: template.Due, Attempt: 1,
		Payload: template.Payload,
	})
	if shape == Naked {
		m = amqp.Publishing{DeliveryMode: amqp.Persistent, Body: template.Payload}
	}
	for i := range n {
		if shape == Same {
			m.MessageId = Task{Number: i}.ID()
		}
		room <- struct{}{}
		if err := ch.PublishWithContext(ctx, queue, queue, shape == Same, false, m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if nacks := <-refused; nacks > 0 {
		return fmt.Errorf("publish: the broker refused %d messages", nacks)
	}
	return nil
}
