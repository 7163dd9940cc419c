package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/retry"
)

// Publisher publishes one topic's messages and reports what became of each.
type Publisher struct {
	connection *Connection
	topic      string
	log        *slog.Logger
	handle     func([]Result)

	turn       chan struct{} // held by the one goroutine that publishes
	handling   sync.Mutex    // held while handle runs
	unresolved tally
	changed    retry.Broadcast
	kicked     chan struct{} // tells Run to look again

	mu       sync.Mutex
	running  bool
	route    Route  // wanted
	version  uint64 // of route
	applied  uint64 // the version that Publish obeys
	current  *channel
	channels map[*channel]struct{} // with results to come
	reason   string                // why current is nil
	block    Block
}

// The kinds of a Block, by what the broker answered.
const (
	NotFound      = "not_found"           // 404: the exchange is not there
	Precondition  = "precondition_failed" // 406: it is there, and otherwise than declared
	AccessRefused = "access_refused"      // 403: a right is missing
	OtherRefusal  = "other"
)

// Block is why a topic can't be forwarded although the connection is open: the broker
// refuses its route. The zero value is none.
type Block struct {
	Kind   string // one of the constants
	Reason string // the broker's own words, with advice
}

// blockOf is the Block of what a channel could not be opened for, or was closed by.
func blockOf(err error, reason string) Block {
	kinds := map[int]string{amqp.NotFound: NotFound, amqp.PreconditionFailed: Precondition, amqp.AccessRefused: AccessRefused}
	var refusal *amqp.Error
	if errors.As(err, &refusal) && refusal != nil && kinds[refusal.Code] != "" {
		return Block{kinds[refusal.Code], reason}
	}
	return Block{OtherRefusal, reason}
}

// reopening is why nothing can be written on a channel that takes no more.
const reopening = "the channel is being opened again"

// NewPublisher makes the publisher of a topic; Run opens its channel.
//
// handle gets the results, as many at once as are known. Its calls don't
// overlap, but come from several goroutines, Publish's own among them. The
// slice is its for the call only. It must not block, nor call the publisher:
// while it does not return nothing of the topic is settled, and after four
// seconds what is in flight becomes Unknown.
func (c *Connection) NewPublisher(topic string, r Route, handle func([]Result)) *Publisher {
	return &Publisher{
		connection: c,
		topic:      topic,
		log:        c.log.With("topic", topic),
		handle:     handle,
		turn:       make(chan struct{}, 1),
		kicked:     make(chan struct{}, 1),
		route:      r.withDefaults(),
		version:    1,
		channels:   make(map[*channel]struct{}),
		reason:     "not started yet",
	}
}

// Ready reports whether Publish would write now: the channel is open, the
// exchange there, the broker not blocked. If not, why.
func (p *Publisher) Ready() (ok bool, reason string) {
	ch, reason := p.open()
	return ch != nil, reason
}

// Blocked returns why the broker refuses the topic's route, and whether it was asked at
// all: judged is false while the newest route waits for its first try, as it does without
// a connection. A route that is refused when something is published stays blocked until
// the broker has left a channel open for five seconds, though it is Ready meanwhile.
func (p *Publisher) Blocked() (b Block, judged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied < p.version {
		return Block{}, false
	}
	return p.block, p.current != nil || p.block != Block{}
}

// WaitReady returns nil once Ready is true. The error wraps ctx's and says
// what was missing last.
func (p *Publisher) WaitReady(ctx context.Context) error {
	for {
		connection, topic := p.connection.changed.Next(), p.changed.Next()
		ok, reason := p.Ready()
		if ok {
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

// SetRoute changes where messages go. What is published after it returned goes
// by the new route; what is in flight is settled as before. A new exchange or
// declaration is checked or made first, on a channel of its own; if that fails
// the topic is not ready until it succeeds, since the old exchange is no
// longer wanted. It may take as long as the requests do, at most the connect
// timeout, while other goroutines still publish by the old route.
func (p *Publisher) SetRoute(r Route) {
	p.mu.Lock()
	p.route = r.withDefaults()
	p.version++
	version := p.version
	p.mu.Unlock()
	notify(p.kicked)
	for {
		changed := p.changed.Next()
		p.mu.Lock()
		done := !p.running || p.applied >= version
		p.mu.Unlock()
		if done {
			return
		}
		<-changed
	}
}

// Publish hands a batch over. Every message gets exactly one Result through
// handle, most of them after Publish has returned: a Deadline or the route's
// ConfirmTimeout bounds when. It blocks while the window is full, for at most
// the write timeout while the network is, and while another goroutine
// publishes. An error says why messages got Unsent; it needs no other handling.
func (p *Publisher) Publish(ctx context.Context, batch []*Message) error {
	p.unresolved.add(len(batch))
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return p.unsent(batch, ctx.Err())
	}
	var last *channel
	for len(batch) > 0 {
		ch, reason := p.open()
		if ch == nil {
			return p.unsent(batch, errors.New(reason))
		}
		if ch == last {
			return p.unsent(batch, errClosed)
		}
		n, err := ch.publish(ctx, batch)
		p.deliver(ch.takeRefused())
		batch = batch[n:]
		if err != nil && !errors.Is(err, errClosed) {
			return p.unsent(batch, err)
		}
		last = ch
	}
	return nil
}

// Drain waits until every message has its Result. When ctx ends first, those
// in flight become Unknown, and the error says how many messages were left.
// Call it when no more is published, and before the contexts of Run end.
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

// open returns the channel to publish on, or nil and why there is none. A channel that
// was replaced while it was looked at is no reason: then the one in its place is.
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

// installed is what Publish uses, or nil and why there is none.
func (p *Publisher) installed() (*channel, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.reason
}

// unsent gives the rest of a batch back.
func (p *Publisher) unsent(rest []*Message, why error) error {
	if len(rest) == 0 {
		return nil
	}
	results := make([]Result, len(rest))
	for i, m := range rest {
		results[i] = Result{Message: m, Outcome: Unsent, Reason: why.Error()}
	}
	p.deliver(results)
	return fmt.Errorf("publish to topic %s: %d messages unsent: %w", p.topic, len(rest), why)
}

// deliver hands results to the caller; each message passes here once.
func (p *Publisher) deliver(results []Result) {
	if len(results) == 0 {
		return
	}
	p.handling.Lock()
	p.handle(results)
	p.handling.Unlock()
	p.unresolved.add(-len(results))
}
