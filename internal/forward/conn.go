package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/amqpframe"
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
	link     *amqpconn.Conn
	wire     *wire         // under link
	answer   time.Duration // how long the broker may take to answer a test of the connection
	closes   chan *amqp.Error
	blocking chan amqp.Blocking
	routes   chan Route         // of topics that want to publish; the probe uses the first
	shared   chan *amqp.Channel // that check uses again
	checked  atomic.Int64       // counts the uses of shared channels.
	tidied   int64              // checked at the last call of tidy

	blocked atomic.Bool  // by an alarm
	maxBody atomic.Int64 // the broker's max_message_size, 0 until an error names it
	noUser  atomic.Bool  // the broker knows this connection's user under another name
}

func dial(ctx context.Context, s *amqpconn.Server, cfg Config, gate *amqpframe.Gate) (_ *conn, err error) {
	c := &conn{answer: cfg.pace.answer, routes: make(chan Route, 1), shared: make(chan *amqp.Channel, checksAtOnce)}
	c.link, err = s.Connect(ctx, amqpconn.Config{Product: appID, Name: cfg.Name, Timeout: cfg.ConnectTimeout,
		Heartbeat: cfg.Heartbeat, Gate: gate, Transport: func(stream, raw net.Conn) net.Conn {
			c.wire = newWire(stream, raw, cfg.WriteTimeout)
			return c.wire
		}})
	if err != nil {
		if errors.As(err, new(*amqp.Error)) {
			err = fmt.Errorf("open %s: %w", s.Addr, amqpconn.Brief(err))
		}
		return nil, err
	}
	c.closes = c.link.AMQP.NotifyClose(make(chan *amqp.Error, 1))
	c.blocking = c.link.AMQP.NotifyBlocked(make(chan amqp.Blocking, blockingBuffer))
	return c, nil
}

// user returns the user-id that messages of this connection may have; "" for none.
func (c *conn) user() string {
	if c.noUser.Load() {
		return ""
	}
	return c.link.Server.User
}

func (c *conn) limits() limits {
	return limits{frame: c.link.AMQP.Config.FrameSize, body: int(c.maxBody.Load())}
}

// learnLimits reads the broker's max_message_size from the error that ended a channel. Larger
// messages are then refused here. Otherwise each of them would end a channel, and
// everything in flight on it would become Unknown. The same holds for user-ids.
func (c *conn) learnLimits(e *amqp.Error) {
	if refusesUser(e) {
		c.noUser.Store(true)
	}
	if limit, ok := amqpconn.MessageLimit(e); ok {
		c.maxBody.Store(int64(limit))
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
	channel, err := c.link.AMQP.Channel()
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
	channel, err := c.link.AMQP.Channel()
	if err != nil {
		return false
	}
	defer channel.Close()
	if r.Declare != nil && !r.needsPlugin() {
		return r.declareExchange(channel) == nil
	}
	return channel.ExchangeDeclarePassive(r.Exchange, amqp.ExchangeDirect, true, false, false, false, nil) == nil
}

// check calls prepare with an open channel that such calls share, one after the other. It takes
// at most limit.
func (c *conn) check(ctx context.Context, limit time.Duration, prepare func(*amqp.Channel) error) error {
	var shared *amqp.Channel
	select {
	case shared = <-c.shared:
	default:
	}
	channel, err := c.prepared(ctx, limit, shared, prepare)
	if err != nil {
		return err
	}
	c.checked.Add(1)
	select {
	case c.shared <- channel:
	default:
		_ = channel.Close()
	}
	return nil
}

// tidy closes the shared channels if none was used since the last call.
func (c *conn) tidy() {
	if n := c.checked.Load(); n != c.tidied {
		c.tidied = n
		return
	}
	for range len(c.shared) {
		select {
		case channel := <-c.shared:
			go channel.Close() // which waits for the broker
		default:
		}
	}
}

// channel opens a channel, and prepare makes it ready. Both together take at most limit.
// These requests take no context; after ctx ends, channel waits for at most another
// closeTimeout. Requests that take longer go on until the broker answers or the connection is
// lost. If they succeed after all, the channel is closed.
func (c *conn) channel(ctx context.Context, limit time.Duration,
	prepare func(*amqp.Channel) error) (*amqp.Channel, error) {
	return c.prepared(ctx, limit, nil, prepare)
}

// prepared is channel with a channel that is open already; nil: it opens one.
func (c *conn) prepared(ctx context.Context, limit time.Duration, opened *amqp.Channel,
	prepare func(*amqp.Channel) error) (*amqp.Channel, error) {
	done := make(chan error, 1)
	go func() {
		var err error
		if opened == nil {
			if opened, err = c.link.AMQP.Channel(); err != nil {
				done <- fmt.Errorf("open a channel: %w", amqpconn.Brief(err))
				return
			}
		}
		if err = prepare(opened); err != nil {
			_ = opened.Close()
		}
		done <- err
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return opened, err
	case <-timer.C:
	case <-ctx.Done():
		timer.Reset(closeTimeout)
		select {
		case err := <-done:
			return opened, err
		case <-timer.C:
		}
	}
	c.suspect()
	go func() {
		if <-done == nil {
			_ = opened.Close()
		}
	}()
	return nil, fmt.Errorf("no answer from %s within %v", c.link.Server.Addr, limit)
}

// suspect tests whether the broker still answers on this connection, and reports the
// result. If the broker doesn't answer, suspect closes the connection. One channel may get
// no answer for its own reason, such as a queue without a leader. That must not cost the
// other topics their channels.
func (c *conn) suspect() (answered bool) {
	answer := make(chan bool, 1)
	if !amqpconn.Within(c.answer, func() {
		channel, err := c.link.AMQP.Channel()
		if err == nil {
			_ = channel.Close()
		}
		answer <- err == nil
	}) {
		c.wire.cut(fmt.Errorf("no answer from %s within %v, the connection was closed", c.link.Server.Addr, c.answer))
		return false
	}
	return <-answer
}

// close closes the connection in order, within little more than closeTimeout.
func (c *conn) close() { c.link.Close(closeTimeout) }

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
		return fmt.Errorf("%s closed the connection", c.link.Server.Addr)
	}
	return fmt.Errorf("connection to %s: %w", c.link.Server.Addr, amqpconn.Brief(e))
}

// lossText returns the error that ended a channel. If this program closed the connection
// and the error is the library's own, it returns the reason for the close.
func (c *conn) lossText(e *amqp.Error) string {
	if why := c.wire.reason(); why != nil && !e.Server {
		return why.Error()
	}
	return amqpconn.Brief(e).Error()
}
