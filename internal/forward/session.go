package forward

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// sweepInterval is how often deadlines are looked at while messages are in flight.
	sweepInterval = 100 * time.Millisecond
	// wornAfter is for how long the broker may refuse all that comes on a channel
	// before another takes its place. RabbitMQ 3.10 goes on refusing on one whose
	// first message met a quorum queue without a leader, long after the queue has
	// one again.
	wornAfter = 5 * time.Second
)

var (
	errClosed  = errors.New("the channel is closed")
	errBlocked = errors.New("RabbitMQ blocks publishers")
)

// session is one channel of a topic, from its opening until all that was
// written on it is settled. A topic that changes its exchange has two for a
// while: one that takes messages and one that settles.
type session struct {
	conn    *Connection
	link    *link
	channel *amqp.Channel
	flights *inflight
	returns chan amqp.Return
	closes  chan *amqp.Error
	stop    chan string // abandon, with this reason
	route   atomic.Pointer[Route]
	deliver func([]Result)
	ended   func()

	results  []Result  // of the loop
	trusted  bool      // nothing that the library told was dropped
	refusing time.Time // since when the broker refuses everything; zero: it doesn't
	worn     atomic.Bool
	replace  func() // it is worn
	// Of the goroutine that publishes: headers of the message that is being
	// written, and the results of what could not be.
	headers amqp.Table
	refused []Result
}

// openSession opens a channel for the route. It takes little more than the
// connect timeout at most.
func (p *Publisher) openSession(ctx context.Context, l *link, r Route) (*session, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := p.tryType(ctx, l, r); err != nil {
		return nil, err
	}
	var s *session
	s = &session{
		conn:    p.conn,
		link:    l,
		flights: newInflight(r.Window, p.conn.cfg.pace.stall),
		stop:    make(chan string, 1),
		deliver: p.deliver,
		ended:   func() { p.leave(s) },
		replace: func() { notify(p.kicked) },
		headers: make(amqp.Table, ownHeaders),
		trusted: true,
	}
	s.route.Store(&r)
	err := l.call(ctx, p.conn.cfg.ConnectTimeout, func() error {
		channel, err := l.amqp.Channel()
		if err != nil {
			return fmt.Errorf("open a channel: %s", brokerText(err))
		}
		s.channel = channel
		s.closes = channel.NotifyClose(make(chan *amqp.Error, 1))
		s.returns = channel.NotifyReturn(make(chan amqp.Return, r.Window))
		if err := r.prepare(channel); err != nil {
			_ = channel.Close()
			return err
		}
		return nil
	}, func() { _ = s.channel.Close() })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// tryType declares an exchange of a type that a plugin brings over a connection
// of its own: a broker without that plugin closes the connection (503), and
// that would be every topic's.
func (p *Publisher) tryType(ctx context.Context, l *link, r Route) error {
	if !r.needsPlugin() {
		return nil
	}
	cfg := p.conn.cfg
	own, err := dial(ctx, l.endpoint, cfg.Name, cfg.WriteTimeout)
	if err != nil {
		return err
	}
	defer own.close()
	return own.call(ctx, cfg.ConnectTimeout, func() error {
		channel, err := own.amqp.Channel()
		if err != nil {
			return fmt.Errorf("open a channel: %s", brokerText(err))
		}
		return r.declareExchange(channel)
	}, func() {})
}

// fits tells whether the session can serve r without opening another channel.
func (s *session) fits(r Route) bool {
	return !s.worn.Load() && s.route.Load().samePlaces(r) && r.Window <= len(s.flights.ring)
}

func (s *session) use(r Route) {
	s.route.Store(&r)
	s.flights.setLimit(r.Window)
}

// publish writes messages in turn and returns how many are accounted for:
// written, or given a Result already. The error says why the rest is not;
// errClosed, that another session may take them.
func (s *session) publish(ctx context.Context, batch []*Message) (int, error) {
	s.link.wire.cork()
	defer s.link.wire.uncork()
	for i, m := range batch {
		mine, err := s.write(ctx, m, len(batch)-i)
		if mine {
			i++
		}
		if err != nil {
			return i, err
		}
	}
	return len(batch), nil
}

// write publishes one message. mine is true if the message is accounted for.
func (s *session) write(ctx context.Context, m *Message, want int) (mine bool, err error) {
	if s.link.blocked.Load() {
		return false, errBlocked
	}
	if why := refusal(&m.Task, s.link.limits()); why != "" {
		s.refused = append(s.refused, Result{Message: m, Outcome: Refused, Reason: why})
		return true, nil
	}
	r := s.route.Load()
	seq, v := s.flights.place(m, r.ConfirmTimeout, want)
	for ; v == full; seq, v = s.flights.place(m, r.ConfirmTimeout, want) {
		if err := s.waitRoom(ctx); err != nil {
			return false, err
		}
		r = s.route.Load()
	}
	switch v {
	case closed:
		return false, errClosed
	case late:
		s.refused = append(s.refused, Result{Message: m, Outcome: Unsent, Reason: "its deadline passed before it could be written"})
		return true, nil
	}
	clear(s.headers)
	confirm, err := s.channel.PublishWithDeferredConfirm(r.Exchange, r.RoutingKey, true, false, publishing(&m.Task, s.headers))
	if err != nil {
		return s.unwritten(seq, err)
	}
	s.flights.written(seq, confirm)
	return true, nil
}

// unwritten decides about a message whose publishing failed. With ErrClosed
// the library kept back at least its last frame (Channel.sendOpen in
// channel.go), so that the broker can't have taken it. After any other error
// nobody knows, and the connection can't be written to again.
func (s *session) unwritten(seq uint64, err error) (mine bool, stop error) {
	if errors.Is(err, amqp.ErrClosed) {
		return !s.flights.undo(seq), errClosed
	}
	s.link.wire.abort()
	return true, fmt.Errorf("write: %w", err)
}

// waitRoom returns when a full window may have room, or publishing must stop.
func (s *session) waitRoom(ctx context.Context) error {
	s.link.wire.uncork()
	defer s.link.wire.cork()
	changed := s.conn.changed.Next()
	if s.link.blocked.Load() {
		return errBlocked
	}
	select {
	case <-s.flights.room:
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeRefused hands over the results of what could not be written.
func (s *session) takeRefused() []Result {
	r := s.refused
	s.refused = nil
	return r
}

// run settles what is in flight until the channel is lost, abandoned, or
// retired and empty. It alone receives returns and looks at confirms.
//
// It waits for the confirm of the oldest message that doesn't lag, then takes all
// that are confirmed by now, so that results come in bunches whenever there are many.
// Those that lag are looked at with each sweep too, and given up when their deadline
// passes: a queue that confirms nothing holds up its own messages alone. Without
// messages in flight it waits without a timer.
func (s *session) run() {
	defer s.ended()
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	sweep.Stop()
	sweeping := false
	for {
		confirm, busy, over := s.flights.next()
		if over {
			s.abandon("the channel is no longer used", false)
			return
		}
		if busy && !sweeping {
			sweep.Reset(sweepInterval)
		} else if !busy && sweeping {
			sweep.Stop()
		}
		sweeping = busy
		swept := false
		select {
		case <-confirm:
		case <-s.flights.wake:
		case <-sweep.C:
			swept = true
		case r, ok := <-s.returns:
			if ok && !s.flights.note(&r) {
				s.trusted = false
				s.abandon("a message was returned that was not in flight", true)
				return
			}
			if !ok {
				s.returns = nil
			}
		case e := <-s.closes:
			s.lost(e)
			return
		case reason := <-s.stop:
			s.settle(true)
			s.abandon(reason, true)
			return
		}
		if s.settle(swept); !s.trusted {
			s.abandon(fmt.Sprintf("this process stood still for more than %v", s.flights.stall), true)
			return
		}
		if swept && !s.expire() {
			s.abandon("the broker's confirm is overdue", false)
			return
		}
	}
}

// settle delivers what the broker has answered for; all as in inflight.settle.
func (s *session) settle(all bool) {
	var stalled bool
	s.results, stalled = s.flights.settle(s.returns, s.alive, all, s.results[:0])
	s.trusted = s.trusted && !stalled
	s.hand()
}

// expire gives up what is overdue. If the broker has been silent, the connection is
// put to the test first: false means that it didn't answer either and was cut. One
// that answers has a channel or a queue that doesn't: nothing more is written on this
// channel, and another takes its place, as one does when what was given up takes too
// much of the window.
func (s *session) expire() (alive bool) {
	late, silent := s.flights.overdue()
	if !late {
		return true
	}
	if silent && !s.link.suspect() {
		return false
	}
	s.results = s.flights.expire(s.results[:0])
	s.hand()
	if silent {
		s.flights.retire()
	}
	if silent || s.flights.crowded() {
		s.wearOut()
	}
	return true
}

// wearOut has another channel take this one's place.
func (s *session) wearOut() {
	if !s.worn.Swap(true) {
		s.replace()
	}
}

func (s *session) alive() bool { return !s.channel.IsClosed() }

func (s *session) hand() {
	if len(s.results) > 0 {
		s.wear()
		s.deliver(s.results)
		clear(s.results)
	}
}

// wear looks for how long the broker has refused everything.
func (s *session) wear() {
	for _, r := range s.results {
		switch {
		case r.Outcome != Refused:
			s.refusing = time.Time{}
		case s.refusing.IsZero():
			s.refusing = time.Now()
		}
	}
	if !s.refusing.IsZero() && time.Since(s.refusing) > wornAfter {
		s.wearOut()
	}
}

// lost settles what was answered before the channel died.
func (s *session) lost(e *amqp.Error) {
	s.link.learn(e)
	s.settle(true)
	reason := "the channel was closed"
	if e != nil {
		reason = brokerText(e)
	}
	s.abandon(reason, false)
}

// abandon gives every remaining message its Result and closes the channel. If
// the broker doesn't answer even that, the channel stays until it does, and
// with suspicion the connection is put to the test.
func (s *session) abandon(reason string, suspicion bool) {
	s.results = s.flights.abandon(s.returns, reason, s.trusted, s.results[:0])
	s.hand()
	s.ended()
	done := make(chan struct{})
	go func() {
		_ = s.channel.Close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		if suspicion {
			s.link.suspect()
		}
	}
}
