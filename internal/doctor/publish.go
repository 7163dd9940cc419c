package doctor

import (
	"context"
	"net"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// tryPublish publishes a message and takes it back. RabbitMQ refuses a message by closing the
// channel. A method that follows the close would end the whole connection, and the library may
// send one. So the message and the method that takes it back leave in one write.
func (b *broker) tryPublish(ctx context.Context, exchange string, body []byte) error {
	return b.ask(ctx, func(ch *amqp.Channel) error {
		if err := ch.Tx(); err != nil {
			return err
		}
		b.out.hold(true)
		err := ch.Publish(exchange, "doctor", false, false, amqp.Publishing{Body: body})
		b.out.hold(false)
		if err != nil {
			return err
		}
		return ch.TxRollback()
	})
}

// cork is a connection that can hold back what is written to it. Safe for concurrent use.
type cork struct {
	net.Conn
	mu    sync.Mutex
	holds bool
	held  []byte
}

// hold begins or ends to hold back bytes. They leave with the first write after the end.
func (c *cork) hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = on
}

// Write implements net.Conn.
func (c *cork) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held = append(c.held, p...); c.holds {
		return len(p), nil
	}
	all := c.held
	c.held = nil
	if _, err := c.Conn.Write(all); err != nil {
		return 0, err
	}
	return len(p), nil
}
