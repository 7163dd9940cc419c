package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/task"
)

const (
	// sweepInterval is how often deadlines are checked while messages are in flight.
	sweepInterval = 100 * time.Millisecond
	// degradedAfter is how long the broker may refuse messages on a channel before another channel
	// replaces it. RabbitMQ 3.10 goes on refusing them on a channel that met a full quorum queue,
	// after the queue's limit was removed. So it does on one whose first message met a queue
	// without a leader.
	degradedAfter = 5 * time.Second
	// redeclareAfter is the least age of a declaration that is made again because the route's
	// queue or its binding is missing. A channel that opens makes them again.
	redeclareAfter = time.Second
	// firstPlaces is the number of places of a topic's first channel, which cost 330 bytes
	// each. Most topics never have more messages in flight. One that fills them gets a
	// channel with morePlaces times as many, up to the whole window.
	firstPlaces = 16
	morePlaces  = 16
	// restAfter is how long a topic that rests keeps its channel.
	restAfter = time.Minute
)

var (
	errClosed  = errors.New("the channel is closed")
	errBlocked = errors.New("RabbitMQ blocks publishers")
)

// channel is one AMQP channel of a topic. It lives until everything written on it is
// settled. While a topic changes its exchange it has two: one accepts messages, the other
// settles.
type channel struct {
	connection *Connection
	conn       *conn
	amqp       *amqp.Channel
	confirms   *confirms
	returns    chan amqp.Return
	closes     chan *amqp.Error
	stop       chan string // abandon, with this reason
	route      atomic.Pointer[Route]
	deliver    func([]Result)
	ended      func()

	results  []Result  // of the loop, for its memory.
	reliable bool      // the library dropped no return.
	refusing time.Time // the first refusal; zero if there was none.
	declared time.Time // when this or an earlier channel declared the route, as prepared says.
	degraded atomic.Bool
	replace  func()                     // called once the channel is degraded or full
	widen    func(places int)           // gives the topic's next channels that many
	refusal  atomic.Pointer[amqp.Error] // the error with which the broker closed it
	// headers and refused belong to the goroutine that publishes. They hold the headers
	// of the message being written, and the results of messages that can't be written.
	headers amqp.Table
	refused []Result
}

// fits reports whether the channel can serve r, with at least that many places, without
// opening another one.
func (ch *channel) fits(r Route, least int) bool {
	return !ch.degraded.Load() && ch.route.Load().samePlaces(r) && least <= len(ch.confirms.ring)
}

func (ch *channel) use(r Route) {
	ch.route.Store(&r)
	ch.confirms.setLimit(r.Window)
}

// Publish publishes a batch. Every message gets exactly one Result through handle, most
// of them after Publish has returned: within its Deadline or the route's ConfirmTimeout.
// Publish blocks while the window is full and while another goroutine publishes. If the
// network is stuck, it blocks for at most the write timeout. An error says why messages
// are Unsent; they have their Results, so the caller needs to do nothing else.
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
		if ch == nil && (reason == atRest || reason == unchecked) {
			ch, reason = p.rise(ctx)
		}
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

// unsent gives the rest of a batch back as Unsent.
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

// deliver passes results to the caller. Each message goes through it once.
func (p *Publisher) deliver(results []Result) {
	if len(results) == 0 {
		return
	}
	p.handling.Lock()
	p.handle(results)
	p.handling.Unlock()
	p.unresolved.add(-len(results))
}

// publish writes the messages in order. It returns how many are accounted for: written,
// or given a Result already. The error says why the rest is not. After errClosed another
// channel may take them.
func (ch *channel) publish(ctx context.Context, batch []*Message) (int, error) {
	ch.conn.wire.cork()
	defer ch.conn.wire.uncork()
	for i, m := range batch {
		mine, err := ch.write(ctx, m, len(batch)-i)
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
func (ch *channel) write(ctx context.Context, m *Message, want int) (mine bool, err error) {
	if ch.conn.blocked.Load() {
		return false, errBlocked
	}
	if why := refusal(&m.Task, ch.conn.limits()); why != "" {
		ch.refused = append(ch.refused, Result{Message: m, Outcome: Refused, Reason: why})
		return true, nil
	}
	r := ch.route.Load()
	seq, v := ch.confirms.place(m, r.ConfirmTimeout, want)
	for ; v == full; seq, v = ch.confirms.place(m, r.ConfirmTimeout, want) {
		if r.Window > len(ch.confirms.ring) {
			ch.widen(morePlaces * len(ch.confirms.ring))
			ch.replace()
		}
		if err := ch.waitRoom(ctx); err != nil {
			return false, err
		}
		r = ch.route.Load()
	}
	switch v {
	case closed:
		return false, errClosed
	case late:
		ch.refused = append(ch.refused, Result{Message: m, Outcome: Unsent,
			Reason: "its deadline passed before it could be written"})
		return true, nil
	}
	p := ch.message(&m.Task, r)
	key := r.keyOf(&m.Task)
	confirm, err := ch.amqp.PublishWithDeferredConfirm(r.Exchange, key, true, false, p)
	if err != nil {
		return ch.unwritten(seq, err)
	}
	ch.confirms.written(seq, confirm)
	return true, nil
}

// message returns a task's message. It is valid until the next call.
func (ch *channel) message(t *task.Task, r *Route) amqp.Publishing {
	if t.AMQP != nil {
		return asItWas(t, r.IntakeHeaders, ch.confirms.user)
	}
	clear(ch.headers)
	return publishing(t, ch.headers, r.Lean)
}

// unwritten handles a message whose publishing failed. With ErrClosed the library kept
// back at least the last frame (Channel.sendOpen in its channel.go), so the broker can't
// have the message. After any other error nobody knows, and the connection can't be
// written to again.
func (ch *channel) unwritten(seq uint64, err error) (mine bool, stop error) {
	if errors.Is(err, amqp.ErrClosed) {
		return !ch.confirms.undo(seq), errClosed
	}
	ch.conn.link.Cut()
	return true, fmt.Errorf("write: %w", err)
}

// waitRoom returns when a full window may have room again. It returns an error when
// publishing must stop.
func (ch *channel) waitRoom(ctx context.Context) error {
	ch.conn.wire.uncork()
	defer ch.conn.wire.cork()
	changed := ch.connection.changed.Next()
	if ch.conn.blocked.Load() {
		return errBlocked
	}
	select {
	case <-ch.confirms.room:
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeRefused returns the results of messages that could not be written.
func (ch *channel) takeRefused() []Result {
	r := ch.refused
	ch.refused = nil
	return r
}

// run settles what is in flight until the channel is lost, abandoned, or retired and
// empty. Only run receives returns and checks confirms.
//
// It waits for the confirm of the oldest message that doesn't lag, then takes every
// message confirmed by now. So under load results come in groups. Each sweep also checks
// the messages that lag and gives them up when their deadline passes. A queue that
// confirms nothing thus delays only its own messages. While nothing is in flight, run
// waits without a timer.
func (ch *channel) run() {
	defer ch.ended()
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	sweep.Stop()
	sweeping := false
	for {
		confirm, busy, over := ch.confirms.next()
		if over {
			ch.abandon("the channel is no longer used", false)
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
		case <-ch.confirms.wake:
		case <-sweep.C:
			swept = true
		case r, ok := <-ch.returns:
			if ok && !ch.confirms.noteReturn(&r) {
				ch.reliable = false
				ch.abandon("a message was returned that was not in flight", true)
				return
			}
			if !ok {
				ch.returns = nil
			}
		case e := <-ch.closes:
			ch.lost(e)
			return
		case reason := <-ch.stop:
			ch.settle(true)
			ch.abandon(reason, true)
			return
		}
		if ch.settle(swept); !ch.reliable {
			ch.abandon(fmt.Sprintf("this process stood still for more than %v", ch.confirms.stall), true)
			return
		}
		if swept && !ch.expire() {
			ch.abandon("the broker's confirm is overdue", false)
			return
		}
	}
}

// settle delivers the results that the broker has answered; all is as in confirms.settle.
func (ch *channel) settle(all bool) {
	var stalled bool
	ch.results, stalled = ch.confirms.settle(ch.returns, ch.alive, all, ch.results[:0])
	ch.reliable = ch.reliable && !stalled
	ch.hand()
}

// expire gives up overdue messages. If the broker has been silent, expire tests the
// connection first; it returns false if the broker doesn't answer and the connection was
// closed. If the broker answers, then only the channel or a queue doesn't: this channel
// takes no more messages and another replaces it. Another also replaces it when given-up
// messages take half of the window.
func (ch *channel) expire() (alive bool) {
	late, silent := ch.confirms.overdue()
	if !late {
		return true
	}
	if silent && !ch.conn.suspect() {
		return false
	}
	ch.results = ch.confirms.expire(ch.results[:0])
	ch.hand()
	if silent {
		ch.confirms.retire()
	}
	if silent || ch.confirms.crowded() {
		ch.degrade()
	}
	return true
}

// degrade asks for another channel in this one's place.
func (ch *channel) degrade() {
	if !ch.degraded.Swap(true) {
		ch.replace()
	}
}

func (ch *channel) alive() bool { return !ch.amqp.IsClosed() }

func (ch *channel) hand() {
	if len(ch.results) > 0 {
		ch.noteRefusals()
		ch.noteReturns()
		ch.deliver(ch.results)
		clear(ch.results)
	}
}

// noteRefusals has another channel replace this one if the broker still refuses messages a while
// after the first refusal.
func (ch *channel) noteRefusals() {
	if !slices.ContainsFunc(ch.results, func(r Result) bool { return r.Outcome == Refused }) {
		return
	}
	if ch.refusing.IsZero() {
		ch.refusing = time.Now()
	}
	if time.Since(ch.refusing) > degradedAfter {
		ch.degrade()
	}
}

// noteReturns has another channel replace this one if the route's own queue or binding is
// missing. A channel that opens makes them again.
func (ch *channel) noteReturns() {
	r := ch.route.Load()
	if r.Declare == nil || r.Declare.Queue == "" || time.Since(ch.declared) < redeclareAfter || ch.degraded.Load() {
		return
	}
	for _, result := range ch.results {
		if result.Outcome == Returned && r.keyOf(&result.Message.Task) == r.RoutingKey {
			ch.connection.log.InfoContext(context.Background(), "a message of the route's own key came back: "+
				"its queue and binding are declared again", "exchange", r.Exchange, "queue", r.Declare.Queue)
			ch.degrade()
			return
		}
	}
}

// lost settles what the broker answered before the channel died.
func (ch *channel) lost(e *amqp.Error) {
	ch.conn.learnLimits(e)
	ch.settle(true)
	reason := "the channel was closed"
	if e != nil {
		reason = ch.conn.lossText(e)
		ch.refusal.Store(e)
	}
	ch.abandon(reason, false)
}

// lostBy returns the error with which the broker closed the channel; nil if it didn't.
func (ch *channel) lostBy() error {
	if e := ch.refusal.Load(); e != nil {
		return e
	}
	return nil
}

// abandon gives every remaining message its Result and closes the channel. If the broker
// doesn't answer even the close, the channel stays open until it does. With suspicion,
// abandon then tests the connection.
func (ch *channel) abandon(reason string, suspicion bool) {
	ch.results = ch.confirms.abandon(ch.returns, reason, ch.reliable, ch.results[:0])
	ch.hand()
	ch.ended()
	if !amqpconn.Within(closeTimeout, func() { _ = ch.amqp.Close() }) && suspicion {
		ch.conn.suspect()
	}
}
