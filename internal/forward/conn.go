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
)

const (
	// blockingBuffer takes more alarms than come while one is looked at; the
	// library drops a notice that waits for 5 s.
	blockingBuffer = 16
	// closeTimeout is what a polite goodbye may take, of a channel or of a
	// connection, before the TCP connection is closed under it.
	closeTimeout = time.Second
	// probeKey is a routing key no queue is bound with.
	probeKey = "duefleet: are you reading?"
)

// conn is one AMQP connection, from its opening to its loss.
type conn struct {
	amqp     *amqp.Connection
	wire     *wire
	addr     string
	endpoint endpoint
	closes   chan *amqp.Error
	blocking chan amqp.Blocking
	routes   chan Route // of topics that want to publish; the first is probed with
	frame    int        // frame_max, in bytes

	blocked atomic.Bool  // by an alarm
	maxBody atomic.Int64 // the broker's max_message_size once an error told it
}

func (c *conn) limits() limits {
	return limits{frame: c.frame, body: int(c.maxBody.Load())}
}

// learn takes the broker's max_message_size out of the error that ended a
// channel, so that the next message above it is refused here instead of ending
// another channel with all that is in flight on it.
func (c *conn) learn(e *amqp.Error) {
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

// probe returns once the broker reads from this connection. Under an alarm a
// broker accepts a new connection, and blocks it only after its first message:
// without a probe that would be a batch of tasks, each of them Unknown in the
// end. The probe's message goes to the exchange of a topic, which is where a user
// may write, in a transaction that is never committed: so it goes nowhere. The
// answer to closing its channel says that the broker went on reading. Errors don't
// matter: who may not write is answered too.
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

// finds reports whether a route's exchange is there, by now if it is declared. One
// whose type a plugin brings isn't declared: that may end the connection.
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

// call runs requests to the broker, which take no context, for at most limit,
// and only a moment longer than ctx. Requests that are given up end when the
// broker answers or the connection is lost; then undo runs.
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
	return fmt.Errorf("no answer from %s within %v", c.addr, limit)
}

// suspect cuts the connection unless the broker answers on it, and reports whether it
// did. A channel that
// gets no answer may be stuck for a reason of its own, such as a queue without
// its leader, and the other topics' channels must not pay for that.
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
	case <-time.After(c.endpoint.answer):
		c.wire.cut(fmt.Errorf("no answer from %s within %v, the connection was closed", c.addr, c.endpoint.answer))
	}
	return answered
}

// close says goodbye, and is over within closeTimeout and a moment.
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

// abandon cuts the connection and returns why.
func (c *conn) abandon(why error) error {
	c.wire.cut(why)
	return why
}

// lossError is why the connection died: why this program closed it, or a failed write if
// there was one, since the library only reports that reading a closed connection failed.
func (c *conn) lossError(e *amqp.Error) error {
	if why := c.wire.reason(); why != nil {
		return why
	}
	if err := c.wire.failure(); err != nil {
		return err
	}
	if e == nil {
		return fmt.Errorf("%s closed the connection", c.addr)
	}
	return fmt.Errorf("connection to %s: %s", c.addr, brokerText(e))
}

// lossText is the error that a channel ended with: of the library's own, as of a read that
// failed, why this program closed the connection under it, if it did.
func (c *conn) lossText(e *amqp.Error) string {
	if why := c.wire.reason(); why != nil && !e.Server {
		return why.Error()
	}
	return brokerText(e)
}

// brokerError is an error that reads as brokerText has it.
type brokerError struct{ cause error }

func (e brokerError) Error() string { return brokerText(e.cause) }

func (e brokerError) Unwrap() error { return e.cause }

// brokerText is an error as the broker put it, with its AMQP code.
func brokerText(err error) string {
	var e *amqp.Error
	if errors.As(err, &e) && e != nil {
		return strconv.Itoa(e.Code) + " " + e.Reason
	}
	return err.Error()
}
