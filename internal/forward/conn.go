package forward

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

const (
	// blockingBuffer holds alarms that come while the connection handles another one. The
	// library drops an alarm that nobody takes within 5 s.
	blockingBuffer = 16
	// closeTimeout bounds the orderly close of a channel or connection. After it the TCP
	// connection is closed.
	closeTimeout = time.Second
	// probeKey is a routing key that no queue is bound with.
	probeKey = "duefleet: are you reading?"
)

// conn is one AMQP connection.
type conn struct {
	amqp     *amqp.Connection
	wire     *wire
	server   *amqpconn.Server
	answer   time.Duration // how long the broker may take to answer a test of the connection
	closes   chan *amqp.Error
	blocking chan amqp.Blocking
	routes   chan Route // of topics that want to publish; the probe uses the first
	frame    int        // frame_max, in bytes

	blocked atomic.Bool  // by an alarm
	maxBody atomic.Int64 // the broker's max_message_size, 0 until an error names it
	noUser  atomic.Bool  // the broker knows this connection's user under another name
}

// user returns the user-id that messages of this connection may have; "" for none.
func (c *conn) user() string {
	if c.noUser.Load() {
		return ""
	}
	return c.server.User
}

func (c *conn) limits() limits {
	return limits{frame: c.frame, body: int(c.maxBody.Load())}
}

// learnLimits reads the broker's max_message_size from the error that ended a channel. Larger
// messages are then refused here. Otherwise each of them would end a channel, and
// everything in flight on it would become Unknown. The same holds for user-ids.
func (c *conn) learnLimits(e *amqp.Error) {
	if refusesUser(e) {
		c.noUser.Store(true)
	}
	if e == nil || e.Code != amqp.PreconditionFailed {
		return
	}
	_, words, ok := strings.Cut(e.Reason, "message size ")
	_, size, found := strings.Cut(words, "max size ")
	if !ok || !found {
		return
	}
	if limit, err := strconv.ParseInt(size, 10, 64); err == nil {
		c.maxBody.Store(limit)
	}
}

// probe returns once the broker reads from this connection. Under an alarm a broker
// accepts a new connection and blocks it only after its first message. Without a probe
// the first message is a batch of tasks, and all of them end as Unknown.
//
// The probe publishes to a topic's exchange, where the user may write. It does so in a
// transaction that it never commits, so no queue gets the message. If the broker answers
// the close of the channel, it has read the message. Errors don't matter: a broker that
// refuses the message has read it too.
func (c *conn) probe(r Route) {
	exchange := r.Exchange
	if !c.finds(r) {
		exchange = "" // AMQP's default exchange is always there
	}
	channel, err := c.amqp.Channel()
	if err != nil {
		return
	}
	if err := channel.Tx(); err != nil {
		return
	}
	if err := channel.Publish(exchange, probeKey, false, false, amqp.Publishing{}); err != nil {
		return
	}
	_ = channel.Close()
}

// finds reports whether the route's exchange exists. It declares the exchange if the
// route says so, unless a plugin provides the type: that could end the connection.
func (c *conn) finds(r Route) bool {
	if r.Exchange == "" || r.check() != nil {
		return false
	}
	channel, err := c.amqp.Channel()
	if err != nil {
		return false
	}
	defer channel.Close()
	if r.Declare != nil && !r.needsPlugin() {
		return r.declareExchange(channel) == nil
	}
	return channel.ExchangeDeclarePassive(r.Exchange, amqp.ExchangeDirect, true, false, false, false, nil) == nil
}

// call runs requests to the broker for at most limit. The requests take no context; after
// ctx ends, call waits for at most another closeTimeout. Requests that take longer go on
// until the broker answers or the connection is lost. If they succeed after all, undo
// runs.
func (c *conn) call(ctx context.Context, limit time.Duration, requests func() error, undo func()) error {
	done := make(chan error, 1)
	go func() { done <- requests() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	case <-ctx.Done():
		timer.Reset(closeTimeout)
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
	}
	c.suspect()
	go func() {
		if <-done == nil {
			undo()
		}
	}()
	return fmt.Errorf("no answer from %s within %v", c.server.Addr, limit)
}

// suspect tests whether the broker still answers on this connection, and reports the
// result. If the broker doesn't answer, suspect closes the connection. One channel may get
// no answer for its own reason, such as a queue without a leader. That must not cost the
// other topics their channels.
func (c *conn) suspect() (answered bool) {
	answer := make(chan bool, 1)
	go func() {
		channel, err := c.amqp.Channel()
		if err == nil {
			_ = channel.Close()
		}
		answer <- err == nil
	}()
	select {
	case answered = <-answer:
	case <-time.After(c.answer):
		c.wire.cut(fmt.Errorf("no answer from %s within %v, the connection was closed", c.server.Addr, c.answer))
	}
	return answered
}

// close closes the connection in order, within little more than closeTimeout.
func (c *conn) close() {
	done := make(chan struct{})
	go func() {
		_ = c.amqp.Close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
	}
	c.wire.abort()
	<-done
}

// abandon closes the connection at once and returns why.
func (c *conn) abandon(why error) error {
	c.wire.cut(why)
	return why
}

// lossError returns why the connection died. The library reports only that reading a
// closed connection failed. So the reason why this program closed it comes first, then a
// failed write, then e.
func (c *conn) lossError(e *amqp.Error) error {
	if why := c.wire.reason(); why != nil {
		return why
	}
	if err := c.wire.failure(); err != nil {
		return err
	}
	if e == nil {
		return fmt.Errorf("%s closed the connection", c.server.Addr)
	}
	return fmt.Errorf("connection to %s: %s", c.server.Addr, brokerText(e))
}

// lossText returns the error that ended a channel. If this program closed the connection
// and the error is the library's own, it returns the reason for the close.
func (c *conn) lossText(e *amqp.Error) string {
	if why := c.wire.reason(); why != nil && !e.Server {
		return why.Error()
	}
	return brokerText(e)
}

// brokerError is an error whose text is brokerText.
type brokerError struct{ cause error }

func (e brokerError) Error() string { return brokerText(e.cause) }

func (e brokerError) Unwrap() error { return e.cause }

// brokerText returns the broker's words with the AMQP code; for other errors their text.
func brokerText(err error) string {
	var e *amqp.Error
	if errors.As(err, &e) && e != nil {
		return strconv.Itoa(e.Code) + " " + e.Reason
	}
	return err.Error()
}
