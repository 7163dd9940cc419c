package forward

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
)

// supervisor looks after a publisher's channel. Its loop runs only while there is something to do.
type supervisor struct {
	p       *Publisher
	ctx     context.Context // of Start
	running bool            // the loop runs; p.mu guards it
	loop    sync.WaitGroup
	loops   sync.WaitGroup // of the channels

	// Only the loop uses these.
	pause     retry.Backoff
	tried     uint64    // the route version of the last attempt.
	retryAt   time.Time // no other attempt with that version before this.
	troubled  bool      // an outage of this topic was logged.
	probation bool      // the last channel was lost before any answer.
	prepared  prepared  // the zero value: nothing
	overAt    time.Time // when an open channel ends the outage.
	waits     bool      // the topic rests, and waits for its turn to check the route.
	turn      bool      // it has its turn, an element of the connection's checks.
}

// prepared is a route that a channel has checked or declared, on a connection; nil: none has yet.
type prepared struct {
	conn  *conn
	route Route
	at    time.Time
}

// serves reports whether a channel for r needs no checks.
func (p prepared) serves(conn *conn, r Route) bool { return p.conn == conn && p.route.samePlaces(r) }

// Start keeps the topic's channel open until ctx ends, unless the topic rests. It waits for nothing.
// If the broker refuses the route (404, 403, 406), this topic alone tries again after 100ms to 5s.
func (p *Publisher) Start(ctx context.Context) {
	s := &supervisor{p: p, ctx: ctx, pause: retry.Backoff{Min: amqpconn.PauseMin, Max: amqpconn.PauseMax}}
	p.mu.Lock()
	p.supervisor = s
	p.mu.Unlock()
	p.connection.join(p)
	p.look()
}

// Wait waits until everything is over, once the context of Start has ended. Messages in flight
// become Unknown, and the channel is closed.
func (p *Publisher) Wait() {
	p.connection.part(p)
	p.mu.Lock() // no loop begins from now on
	s := p.supervisor
	p.supervisor = nil
	p.mu.Unlock()
	s.loop.Wait()
	p.end()
	s.loops.Wait()
}

// look makes the loop look at what is wanted and what there is, because that may have changed.
func (p *Publisher) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.supervisor
	switch {
	case s == nil || s.ctx.Err() != nil:
	case s.running:
		p.kicked.Send()
	default:
		s.running = true
		s.loop.Go(func() { s.run(s.ctx) })
	}
}

// run looks until nothing is left to do or to wait for, or until ctx ends.
func (s *supervisor) run(ctx context.Context) {
	for ctx.Err() == nil {
		again := s.look(ctx)
		s.endTurn()
		var turns chan<- struct{}
		switch {
		case s.waits:
			turns = s.p.connection.checks
		case again != nil:
		case s.over():
			return
		default: // another look was asked for
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.p.kicked:
		case <-again:
		case turns <- struct{}{}:
			s.turn = true
		}
	}
	s.endTurn()
}

// over reports whether nobody asked for another look. Then the loop no longer runs.
func (s *supervisor) over() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	select {
	case <-s.p.kicked:
		return false
	default:
		s.running = false
		return true
	}
}

// endTurn gives up the topic's turn to check its route, if it has it.
func (s *supervisor) endTurn() {
	if s.turn {
		s.turn = false
		<-s.p.connection.checks
	}
}

// look compares the wanted route with the open channel and takes one step: use the
// channel with the new route, open another, or have none. The channel it returns fires
// when the loop should look again although nothing changed.
func (s *supervisor) look(ctx context.Context) <-chan time.Time {
	s.waits = false
	want, version, current := s.p.wanted()
	resting, rested := s.p.rests()
	current = s.living(ctx, current, version)
	kept := s.p.connection.cfg.pace.rest - time.Since(rested)
	if current != nil && current.fits(want, s.p.places(want.Window)) && (!resting || kept > 0) {
		current.use(want)
		s.p.install(current, version, "")
		if again := s.endOutage(ctx, want); again != nil || !resting {
			return again
		}
		return time.After(kept)
	}
	conn, reason := s.p.connection.open()
	if conn == nil {
		s.p.connection.ask(want)
		s.p.install(nil, version, reason)
		return nil
	}
	if resting && s.prepared.serves(conn, want) {
		s.p.install(nil, version, atRest)
		return s.endOutage(ctx, want)
	}
	if wait := time.Until(s.retryAt); version == s.tried && wait > 0 {
		return time.After(wait)
	}
	if resting && !s.turn {
		s.waits = true
		s.p.explain(unchecked)
		return nil
	}
	if version != s.tried {
		s.probation = false // it was about another route
		s.p.blocked(Block{})
	}
	s.tried = version
	if !s.prepared.serves(conn, want) {
		s.prepared = prepared{at: time.Now()}
	}
	at := s.prepared.at
	next, err := s.p.reach(ctx, conn, want, s.prepared)
	if err != nil {
		s.probation, s.prepared = false, prepared{}
		reason := err.Error()
		reason += s.p.connection.cfg.Advice(reason)
		s.p.install(nil, version, reason)
		if conn.link.AMQP.IsClosed() {
			return nil // not this topic's trouble; the next connection brings another look
		}
		return s.rest(ctx, blockOf(err, reason))
	}
	if s.overAt = time.Now(); s.probation {
		s.overAt = s.overAt.Add(amqpconn.PauseMax)
	}
	s.prepared = prepared{conn, want, at}
	again := s.endOutage(ctx, want) // first, so that no topic is both ready and blocked
	if next == nil {
		s.p.install(nil, version, atRest)
		return again
	}
	s.p.install(next, version, "")
	s.loops.Go(next.run)
	return again
}

// living returns the channel if it hasn't ended; nil if it has, after what follows from that.
func (s *supervisor) living(ctx context.Context, ch *channel, version uint64) *channel {
	if ch == nil {
		return nil
	}
	ended, reason, confirmedOnce := ch.confirms.ended()
	if ended {
		reason += s.p.connection.cfg.Advice(reason)
		s.p.install(nil, version, reason)
		s.gone(ctx, ch, reason, confirmedOnce)
		return nil
	}
	if ch.degraded.Load() {
		s.prepared = prepared{}
	}
	return ch
}

// endOutage ends an outage that was logged. It does so at once if the outage was a channel
// that could not be opened. If a channel opened and then its first message was refused,
// endOutage waits a while, because the broker may refuse again.
func (s *supervisor) endOutage(ctx context.Context, r Route) <-chan time.Time {
	if !s.troubled {
		return nil
	}
	if wait := time.Until(s.overAt); wait > 0 {
		return time.After(wait)
	}
	s.troubled = false
	s.p.blocked(Block{})
	s.p.log.InfoContext(ctx, "topic can be forwarded again", "exchange", r.Exchange)
	return nil
}

// gone handles a channel that ended by itself. If the whole connection ended, there is no
// pause: the next connection brings another look.
func (s *supervisor) gone(ctx context.Context, old *channel, reason string, confirmedOnce bool) {
	if s.probation = !confirmedOnce; confirmedOnce {
		s.pause.Reset()
	}
	if !old.conn.link.AMQP.IsClosed() {
		s.prepared = prepared{}
		s.rest(ctx, blockOf(old.lostBy(), reason))
	}
}

// rest starts a pause before the next attempt and logs the first of an outage.
func (s *supervisor) rest(ctx context.Context, why Block) <-chan time.Time {
	s.p.blocked(why)
	if !s.troubled {
		s.troubled = true
		s.p.log.WarnContext(ctx, "topic cannot be forwarded", "reason", why.Reason)
	}
	wait := s.pause.Next()
	s.retryAt = time.Now().Add(wait)
	return time.After(wait)
}

// end gives up what is in flight and wakes everyone who waits for a channel.
func (p *Publisher) end() {
	p.mu.Lock()
	p.current, p.reason, p.block = nil, "stopped", Block{}
	p.mu.Unlock()
	p.abandonAll("stopped before the broker's confirm")
	p.changed.Fire()
}

func (p *Publisher) wanted() (r Route, version uint64, current *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.route, p.version, p.current
}

// install makes ch the channel that Publish uses. If ch is nil there is none, for that
// reason. The channel before it settles what it has in flight.
func (p *Publisher) install(ch *channel, version uint64, reason string) {
	p.mu.Lock()
	old := p.current
	p.current, p.applied, p.reason = ch, version, reason
	if ch != nil {
		p.channels[ch] = struct{}{}
	}
	p.mu.Unlock()
	if old != nil && old != ch {
		old.confirms.retire()
	}
	p.changed.Fire()
}

// explain sets the reason why the publisher has no channel, if it has none.
func (p *Publisher) explain(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		p.reason = reason
	}
}

// blocked records why the broker refuses the route.
func (p *Publisher) blocked(why Block) {
	p.mu.Lock()
	p.block = why
	p.mu.Unlock()
}

// leave is called by a channel that has no more results.
func (p *Publisher) leave(ch *channel) {
	p.mu.Lock()
	delete(p.channels, ch)
	p.mu.Unlock()
	p.look()
	p.changed.Fire()
}

func (p *Publisher) abandonAll(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ch := range p.channels {
		select {
		case ch.stop <- reason:
		default: // it has a reason already
		}
	}
}

// reach checks or declares what the route needs, unless that was done on this connection: a queue
// may answer nothing. It opens a channel, if the topic doesn't rest. It takes little longer than
// the connect timeout at most.
func (p *Publisher) reach(ctx context.Context, conn *conn, r Route, ready prepared) (*channel, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if ready.conn == nil {
		if err := p.tryType(ctx, conn, r); err != nil {
			return nil, err
		}
	}
	if resting, _ := p.rests(); resting && ready.conn == nil {
		return nil, conn.check(ctx, p.connection.cfg.ConnectTimeout, r.prepare)
	}
	places := p.places(r.Window)
	var ch *channel
	ch = &channel{
		connection: p.connection,
		conn:       conn,
		confirms:   newConfirms(places, p.connection.cfg.pace.stall),
		stop:       make(chan string, 1),
		deliver:    p.deliver,
		ended:      func() { p.leave(ch) },
		replace:    p.look,
		widen:      p.widen,
		headers:    make(amqp.Table, ownHeaders),
		reliable:   true,
		declared:   ready.at,
	}
	ch.route.Store(&r)
	ch.confirms.user = conn.user()
	var err error
	ch.amqp, err = conn.channel(ctx, p.connection.cfg.ConnectTimeout, func(channel *amqp.Channel) error {
		ch.closes = channel.NotifyClose(make(chan *amqp.Error, 1))
		ch.returns = channel.NotifyReturn(make(chan amqp.Return, places))
		if err := channel.Confirm(false); err != nil {
			return fmt.Errorf("ask for confirms: %w", amqpconn.Brief(err))
		}
		if ready.conn == nil {
			return r.prepare(channel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// tryType declares an exchange whose type comes from a plugin, over a separate
// connection. A broker without the plugin closes the connection (503). On the shared
// connection that would hit every topic.
func (p *Publisher) tryType(ctx context.Context, conn *conn, r Route) error {
	if !r.needsPlugin() {
		return nil
	}
	cfg := p.connection.cfg
	own, err := dial(ctx, p.connection.renewed(conn.link.Server), cfg, nil)
	if err != nil {
		return err
	}
	defer own.close()
	_, err = own.channel(ctx, cfg.ConnectTimeout, r.declareExchange)
	return err
}
