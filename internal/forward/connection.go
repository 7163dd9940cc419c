package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/wake"
)

const (
	defaultTimeout   = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	// watchTick is how often an idle connection is checked.
	watchTick    = time.Second
	defaultStall = 4 * time.Second

	unanswered = "RabbitMQ has not answered yet"
)

// Config configures a Connection.
type Config struct {
	// URLs are tried in turn, as in amqp://user:password@host:5672/vhost.
	// Required.
	URLs []string
	// TLS is used with amqps:// URLs. Defaults to the system's authorities.
	TLS *tls.Config
	// Latest returns the URLs and TLS to use from now on. It is called before each
	// attempt to connect. If its URLs can't be parsed, the previous ones stay in use.
	// Defaults to URLs and TLS, unchanged.
	Latest func() (urls []string, secure *tls.Config)
	// Log gets one record when an outage begins and one when it is over. It gets another
	// when an error comes with new advice. Defaults to no log.
	Log *slog.Logger
	// Advice returns what to do about an error, to be appended to its text. Defaults to
	// no advice.
	Advice func(text string) string
	// Receives is true for a connection that nothing is published on. It needs no probe,
	// and no alarm stops it. Defaults to false.
	Receives bool
	// Name is shown in RabbitMQ's list of connections. Defaults to none.
	Name string
	// WriteTimeout bounds one write to the broker. Defaults to 10s.
	WriteTimeout time.Duration
	// ConnectTimeout bounds one attempt to connect, and the requests that open
	// a topic's channel. A URL's connection_timeout wins. Defaults to 10s.
	ConnectTimeout time.Duration
	// Heartbeat is the interval to ask the broker for, in whole seconds. After one and a
	// half intervals of silence the connection is lost. A URL's heartbeat wins. Defaults
	// to 10s.
	Heartbeat time.Duration

	// Beat says when in a second the connection is looked after.
	Beat wake.Beat

	pace pace
}

// pace holds what users can't configure. Tests that must not hit these limits raise them.
type pace struct {
	rest time.Duration // restAfter
	// stall is how long this process may stand still (stopped, frozen, starved). After a
	// longer pause nothing that the library reported meanwhile counts: at 5 s the library
	// drops what nobody took, even a return. Defaults to 4s.
	stall time.Duration
	// answer is how long a suspected broker has to answer a test. Defaults to 1s.
	answer time.Duration
}

// refusedPause is the shortest pause after a refused password.
const refusedPause = time.Second

// Connection keeps one AMQP connection up for all topics.
type Connection struct {
	cfg     Config
	log     *slog.Logger
	servers []*amqpconn.Server // the ones to try; Run's own
	turn    int                // which server is tried next; Run's own
	stale   bool               // the latest URLs can't be used; Run's own
	changed wake.Broadcast
	checks  chan struct{} // has an element for each resting topic whose route is being checked
	gate    *amqpframe.Gate

	mu         sync.Mutex
	conn       *conn // nil while there is none
	usable     bool  // its broker answered its probe
	reason     string
	publishers map[*Publisher]struct{} // that were started
}

// checksAtOnce is how many resting topics may check their routes at a time, each on a channel.
// RabbitMQ gives a connection 2,047 channels by default.
const checksAtOnce = 64

// New checks the configuration and starts nothing. An error gives the position of a bad
// URL in the list.
func New(cfg Config) (*Connection, error) {
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, defaultTimeout)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, defaultTimeout)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, defaultHeartbeat)
	cfg.pace.stall = cmp.Or(cfg.pace.stall, defaultStall)
	cfg.pace.rest = cmp.Or(cfg.pace.rest, restAfter)
	cfg.pace.answer = cmp.Or(cfg.pace.answer, closeTimeout)
	c := &Connection{cfg: cfg, log: cfg.Log, gate: amqpframe.NewGate(), checks: make(chan struct{}, checksAtOnce),
		reason: "not connected yet", publishers: map[*Publisher]struct{}{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.cfg.Advice == nil {
		c.cfg.Advice = func(string) string { return "" }
	}
	var err error
	if c.servers, err = parseServers(cfg); err != nil {
		return nil, err
	}
	return c, nil
}

func parseServers(cfg Config) ([]*amqpconn.Server, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("rabbitmq urls: must name a broker")
	}
	var all []*amqpconn.Server
	for i, raw := range cfg.URLs {
		s, err := amqpconn.Parse(raw, cfg.TLS)
		if err != nil {
			return nil, fmt.Errorf("rabbitmq url %d: %w", i+1, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// State reports whether the broker is connected and whether an alarm makes it block
// publishers. reason says why, if it isn't connected or blocks.
func (c *Connection) State() (connected, blocked bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return false, false, c.reason
	}
	return true, c.conn.blocked.Load(), c.reason
}

// Version returns the version that the connected broker tells, as in 4.1.2; "" if none is connected
// or it tells none.
func (c *Connection) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return ""
	}
	version, _ := c.conn.link.AMQP.Properties["version"].(string)
	return version
}

// Run keeps the connection up until ctx ends, then closes it within two seconds and
// returns nil. Messages in flight become Unknown.
//
// While no broker answers, Run tries all URLs in turn, with pauses that grow from 100ms
// to 5s. After a refused password the pause is at least 1s. A connection that lasted
// longer than 5s resets the pauses.
func (c *Connection) Run(ctx context.Context) error {
	outage := amqpconn.NewOutage()
	var advised string
	for {
		conn, err := c.dialAny(ctx)
		if err == nil {
			c.logUp(ctx, conn, outage.Over())
			err = c.serve(ctx, conn)
		}
		if ctx.Err() != nil {
			c.set(nil, false, "stopped")
			return nil
		}
		c.set(nil, false, err.Error())
		advice, first := c.cfg.Advice(err.Error()), outage.Failed()
		if first || (advice != "" && advice != advised) {
			advised = advice
			c.log.WarnContext(ctx, "rabbitmq is unavailable", "error", err)
		}
		wait := outage.Pause()
		if errors.As(err, new(*amqpconn.LoginError)) {
			wait = max(wait, refusedPause)
		}
		retry.Sleep(ctx, wait)
	}
}

func (c *Connection) logUp(ctx context.Context, conn *conn, outage time.Duration) {
	if outage == 0 {
		c.log.InfoContext(ctx, "rabbitmq is connected", "address", conn.link.Server.Addr)
		return
	}
	c.log.InfoContext(ctx, "rabbitmq is available again", "address", conn.link.Server.Addr, "outage", outage)
}

// refresh takes the latest URLs and TLS. It logs once if they can't be used.
func (c *Connection) refresh(ctx context.Context) {
	servers, err := c.latest()
	if err == nil {
		c.servers, c.turn = servers, c.turn%len(servers)
	} else if !c.stale {
		c.log.WarnContext(ctx, "rabbitmq urls have changed but can't be used, the previous ones stay in use", "error", err)
	}
	c.stale = err != nil
}

// latest returns the servers that the configuration names now.
func (c *Connection) latest() ([]*amqpconn.Server, error) {
	cfg := c.cfg
	if cfg.Latest != nil {
		cfg.URLs, cfg.TLS = cfg.Latest()
	}
	return parseServers(cfg)
}

// renewed returns the server with its current user, password and TLS.
func (c *Connection) renewed(old *amqpconn.Server) *amqpconn.Server {
	servers, _ := c.latest() // Run logs the error
	for _, s := range servers {
		if s.Addr == old.Addr && s.Vhost == old.Vhost {
			return s
		}
	}
	return old
}

// dialAny tries each of the latest servers once. It begins with the one after the last
// that failed.
func (c *Connection) dialAny(ctx context.Context) (*conn, error) {
	c.refresh(ctx)
	var errs []error
	var advice []string // by error
	for range c.servers {
		conn, err := dial(ctx, c.servers[c.turn], c.cfg, c.gate)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs, advice = append(errs, err), append(advice, c.cfg.Advice(err.Error()))
		c.turn = (c.turn + 1) % len(c.servers)
	}
	return nil, oneLine(errs, advice)
}

// oneLine joins errors on one line for a log, each with its advice. Advice that the next
// error repeats is written only once, after the last of them.
func oneLine(errs []error, advice []string) (all error) {
	for i, err := range errs {
		if i+1 == len(errs) || advice[i+1] != advice[i] {
			err = fmt.Errorf("%w%s", err, advice[i])
		}
		if all == nil {
			all = err
			continue
		}
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

// serve serves one connection until it is lost or ctx ends. It returns why the
// connection was lost, nil after ctx. The first topic that wants to publish triggers the
// probe.
func (c *Connection) serve(ctx context.Context, conn *conn) error {
	var probed chan struct{} // nil: no probe is under way
	routes := conn.routes
	c.set(conn, false, unanswered)
	tick := time.NewTimer(c.cfg.Beat.Until(watchTick))
	defer tick.Stop()
	began, last := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			conn.close()
			return nil
		case e := <-conn.closes:
			// The library may leave the TCP connection open here.
			conn.link.Cut()
			return conn.lossError(e)
		case b, ok := <-conn.blocking:
			if !ok {
				conn.blocking = nil // the reason comes through closes
				continue
			}
			c.block(ctx, conn, b)
		case r := <-routes:
			routes, began = nil, time.Now()
			done := make(chan struct{})
			probed = done
			go func() {
				conn.probe(r)
				close(done)
			}()
		case <-probed:
			probed = nil
			c.answered(conn)
		case <-tick.C:
			conn.tidy()
			tick.Reset(c.cfg.Beat.Until(watchTick))
		}
		now := time.Now()
		if now.Sub(last) > c.cfg.pace.stall {
			return conn.abandon(fmt.Errorf("this process stood still for %v", now.Sub(last)))
		}
		last = now
		if probed != nil && !conn.blocked.Load() && now.Sub(began) > c.cfg.ConnectTimeout {
			return conn.abandon(fmt.Errorf("no answer from %s within %v", conn.link.Server.Addr, c.cfg.ConnectTimeout))
		}
	}
}

// block records that an alarm began or ended.
func (c *Connection) block(ctx context.Context, conn *conn, b amqp.Blocking) {
	if conn.blocked.Swap(b.Active) == b.Active {
		return
	}
	if b.Active {
		c.log.WarnContext(ctx, "rabbitmq blocks publishers", "reason", b.Reason)
	} else {
		c.log.InfoContext(ctx, "rabbitmq takes messages again")
	}
	c.mu.Lock()
	c.reason = b.Reason
	if !b.Active && !c.usable {
		c.reason = unanswered
	}
	c.mu.Unlock()
	c.tell()
}

// tell tells everybody that the connection has changed.
func (c *Connection) tell() {
	c.changed.Fire()
	c.mu.Lock()
	publishers := slices.Collect(maps.Keys(c.publishers))
	c.mu.Unlock()
	for _, p := range publishers {
		p.look()
	}
}

// join makes a publisher look when the connection changes.
func (c *Connection) join(p *Publisher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishers[p] = struct{}{}
}

func (c *Connection) part(p *Publisher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.publishers, p)
}

// answered lets publishers use the connection.
func (c *Connection) answered(conn *conn) {
	c.mu.Lock()
	c.usable = true
	if !conn.blocked.Load() {
		c.reason = ""
	}
	c.mu.Unlock()
	c.tell()
}

func (c *Connection) set(conn *conn, usable bool, reason string) {
	c.mu.Lock()
	c.conn, c.usable, c.reason = conn, usable, reason
	c.mu.Unlock()
	c.tell()
}

// ask requests a probe of the connection with this route, unless the broker has answered
// one.
func (c *Connection) ask(r Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || c.usable {
		return
	}
	select {
	case c.conn.routes <- r:
	default: // another topic's route will do
	}
}

// open returns the connection if it accepts messages now, else nil and the reason.
func (c *Connection) open() (*conn, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.conn == nil:
		return nil, "not connected to RabbitMQ: " + c.reason
	case c.cfg.Receives:
		return c.conn, ""
	case c.conn.blocked.Load():
		return nil, "RabbitMQ blocks publishers: " + c.reason
	case !c.usable:
		return nil, unanswered
	}
	return c.conn, ""
}
