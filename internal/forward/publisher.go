package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/wake"
)

// Publisher publishes one topic's messages and reports the outcome of each.
type Publisher struct {
	connection *Connection
	topic      string
	log        *slog.Logger
	handle     func([]Result)

	turn       chan struct{} // held by the one goroutine that publishes
	handling   sync.Mutex    // held while handle runs
	unresolved tally
	changed    wake.Broadcast
	kicked     wake.Signal // tells the supervisor's loop to look again

	mu         sync.Mutex
	supervisor *supervisor // from Start to Wait
	route      Route       // wanted
	version    uint64      // of route
	applied    uint64      // the version that Publish uses
	current    *channel
	channels   map[*channel]struct{} // with results to come
	reason     string                // why current is nil
	block      Block
	wide       int       // the places that the topic has needed
	resting    bool      // Rest was called
	rested     time.Time // when resting changed; zero if that was before Start
}

// The kinds of a Block, by the broker's answer.
const (
	NotFound      = "not_found"           // 404: the exchange doesn't exist
	Precondition  = "precondition_failed" // 406: it exists with other properties than declared
	AccessRefused = "access_refused"      // 403: a permission is missing
	OtherRefusal  = "other"
)

// Block says why the broker refuses a topic's route although the connection is open. The
// zero value means that it doesn't.
type Block struct {
	Kind   string // one of the constants
	Reason string // the broker's own words, with advice
}

// blockOf returns the Block for the error that a channel failed to open or was closed
// with.
func blockOf(err error, reason string) Block {
	kinds := map[int]string{amqp.NotFound: NotFound, amqp.PreconditionFailed: Precondition,
		amqp.AccessRefused: AccessRefused}
	var refusal *amqp.Error
	if errors.As(err, &refusal) && refusal != nil && kinds[refusal.Code] != "" {
		return Block{kinds[refusal.Code], reason}
	}
	return Block{OtherRefusal, reason}
}

// atRest is the reason while a topic that rests has no channel, and until it has one again.
const atRest = "the topic rests"

// unchecked is the reason while a topic that rests waits for its turn to check its route.
const unchecked = "the route isn't checked yet"

// openGrace is how long a topic that rested counts as ready while its channel opens.
const openGrace = time.Second

// reopening is the reason while a channel that accepts no more messages is being
// replaced.
const reopening = "the channel is being opened again"

// NewPublisher returns the publisher of a topic; Start opens its channel.
//
// handle gets the results in groups. Its calls don't overlap, but come from several
// goroutines, also from Publish itself. It must not keep the slice, block, or call the
// publisher. Nothing of the topic is settled until it returns, and after four seconds the
// messages in flight become Unknown.
func (c *Connection) NewPublisher(topic string, r Route, handle func([]Result)) *Publisher {
	return &Publisher{
		connection: c,
		topic:      topic,
		log:        c.log.With("topic", topic),
		handle:     handle,
		turn:       make(chan struct{}, 1),
		kicked:     wake.NewSignal(),
		route:      r.withDefaults(),
		version:    1,
		channels:   make(map[*channel]struct{}),
		reason:     "not started yet",
	}
}

// Ready reports whether Publish would write now: the channel is open, the exchange
// exists, and the broker doesn't block publishers. A topic that rests is ready without a
// channel. If not, reason says why.
func (p *Publisher) Ready() (ok bool, reason string) {
	ch, reason := p.open()
	if ch != nil || reason != atRest {
		return ch != nil, reason
	}
	if resting, since := p.rests(); !resting && time.Since(since) > openGrace {
		return false, reopening
	}
	return true, ""
}

// Blocked returns why the broker refuses the topic's route. judged is false while the
// newest route waits for its first attempt, for example without a connection.
//
// The broker may refuse a route only when a message is published. Such a route stays
// blocked until a channel has been open for five seconds, although it is Ready meanwhile.
func (p *Publisher) Blocked() (b Block, judged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied < p.version {
		return Block{}, false
	}
	return p.block, p.current != nil || p.reason == atRest || p.block != Block{}
}

// WaitReady returns nil once the channel is open. When ctx ends first, the error wraps ctx's
// error and names the last reason.
func (p *Publisher) WaitReady(ctx context.Context) error {
	for {
		connection, topic := p.connection.changed.Next(), p.changed.Next()
		ch, reason := p.open()
		if ch != nil {
			return nil
		}
		select {
		case <-connection:
		case <-topic:
		case <-ctx.Done():
			return fmt.Errorf("wait for topic %s: %s: %w", p.topic, reason, ctx.Err())
		}
	}
}

// SetRoute changes where messages go. Messages published after it returned use the new
// route; messages in flight are settled as before. A new exchange or declaration is first
// checked or made on a new channel. If that fails, the topic is not ready until it
// succeeds, because the old exchange is no longer wanted.
//
// SetRoute waits for these requests, for at most the connect timeout. Other goroutines
// still publish by the old route meanwhile.
func (p *Publisher) SetRoute(r Route) {
	p.mu.Lock()
	p.route = r.withDefaults()
	p.version++
	version := p.version
	p.mu.Unlock()
	p.look()
	for {
		changed := p.changed.Next()
		p.mu.Lock()
		done := p.supervisor == nil || p.supervisor.ctx.Err() != nil || p.applied >= version
		p.mu.Unlock()
		if done {
			return
		}
		<-changed
	}
}

// Drain waits until every message has its Result. When ctx ends first, messages in flight
// become Unknown, and the error says how many were left. Call it after the last Publish
// and before the contexts of Start and of the connection's Run end.
func (p *Publisher) Drain(ctx context.Context) error {
	err := p.unresolved.wait(ctx)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("drain topic %s: %d messages unresolved: %w", p.topic, p.unresolved.count(), err)
	p.abandonAll("given up while draining")
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*p.connection.cfg.pace.answer)
	defer cancel()
	return errors.Join(err, p.unresolved.wait(last))
}

// open returns the channel to publish on, or nil and the reason. If the channel was
// replaced during the check, open checks the new one.
func (p *Publisher) open() (*channel, string) {
	for {
		ch, why := p.installed()
		conn, reason := p.connection.open()
		switch {
		case conn == nil:
			return nil, reason
		case ch == nil:
		case ch.conn != conn:
			why = reopening
		default:
			var serving bool
			if serving, why = ch.confirms.serving(); serving {
				return ch, ""
			}
		}
		if now, _ := p.installed(); now == ch {
			return nil, why
		}
	}
}

// rise opens the channel of a topic that rests, for messages that come all the same.
func (p *Publisher) rise(ctx context.Context) (*channel, string) {
	p.Rest(false)
	ctx, cancel := context.WithTimeout(ctx, p.connection.cfg.ConnectTimeout)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		return nil, err.Error()
	}
	return p.open()
}

// Rest closes the topic's channel after a minute while on is true, because nothing is to be
// published soon. The next message needs a channel first.
func (p *Publisher) Rest(on bool) {
	p.mu.Lock()
	p.resting, p.wide = on, 0
	if p.supervisor != nil {
		p.rested = time.Now()
	}
	p.mu.Unlock()
	p.look()
}

// rests reports whether the topic rests, and since when it does or doesn't.
func (p *Publisher) rests() (resting bool, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resting, p.rested
}

// places returns how many messages in flight the topic's channel must have room for, of a
// window.
func (p *Publisher) places(window int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resting {
		return 1
	}
	return min(window, max(p.wide, firstPlaces))
}

// widen gives the topic's next channels that many places, but no more than a whole window.
func (p *Publisher) widen(places int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wide = max(p.wide, places)
}

// installed returns the channel that Publish uses, or nil and the reason.
func (p *Publisher) installed() (*channel, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.reason
}

// tally counts the messages without a Result.
type tally struct {
	mu   sync.Mutex
	n    int
	zero wake.Broadcast
}

func (t *tally) add(n int) {
	t.mu.Lock()
	t.n += n
	empty := t.n == 0
	t.mu.Unlock()
	if empty {
		t.zero.Fire()
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// wait returns nil when nothing is left, or ctx's error.
func (t *tally) wait(ctx context.Context) error {
	for {
		zero := t.zero.Next()
		if t.count() == 0 {
			return nil
		}
		select {
		case <-zero:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
