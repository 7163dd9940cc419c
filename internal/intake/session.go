package intake

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// closeTimeout bounds the orderly close of a channel.
const closeTimeout = time.Second

// unusedGrant is how long a session keeps a part of Large for a message that doesn't come.
const unusedGrant = time.Second

// session is one consumer on one channel.
type session struct {
	in          *Intake
	channel     *amqp.Channel
	closes      chan *amqp.Error
	prefetch    int
	rules       rules
	exchange    string         // for refused messages
	deadLetters bool           // Settings.DeadLetters
	tasks       *router.Router // with the session's term; nil before takeOver

	more   wake.Signal   // something arrived
	over   chan struct{} // closed when nothing more arrives: the channel or the queue is gone
	closed chan struct{} // closed by close

	// Only run and close use these.
	acked   amqpconn.Acked
	unnamed bool // a message without an ID was acked

	mu      sync.Mutex
	coming  []arrival // messages that amqp091-go has
	arrived []*item
	unacked int   // coming and arrived.
	bytes   int   // of them.
	shut    bool  // nothing more is admitted.
	fit     int   // unacked when a message didn't fit.
	full    bool  // all that was admitted before that has arrived.
	again   bool  // RabbitMQ had delivered the message before that arrived last.
	granted int64 // bytes of Large that it has, until nothing is unacked.
	wants   int64 // bytes of Large that it lacked.
}

// consume takes messages until ctx ends, and then returns nil. It also returns nil if
// another prefetch suits the messages better, or if one didn't fit into the room. Otherwise
// the error says why it can't go on.
func (in *Intake) consume(ctx context.Context, s Settings) error {
	one := &session{in: in, prefetch: in.prefetch, rules: rules{maxPayload: in.cfg.MaxPayload, key: s.Key},
		exchange: s.Refused, deadLetters: s.DeadLetters, more: wake.NewSignal(), over: make(chan struct{}),
		closed: make(chan struct{}), closes: make(chan *amqp.Error, 1)}
	if in.wants > 0 { // Acquire waits behind others even for 0
		if in.cfg.Large.bytes.Acquire(ctx, in.wants) != nil {
			return nil
		}
		one.granted = in.wants
	}
	defer one.forget()
	if _, err := in.cfg.Topic.Placement(ctx); err != nil { // else another scanner may have better luck
		return fmt.Errorf("redis: %w%s", err, in.cfg.Advice(err.Error()))
	}
	if s.Target == "" {
		one.rules.loops = s.Queue
	}
	consumer := "duefleet-intake-" + rand.Text()
	defer in.cfg.In.Watch(consumer, one.admit)()
	var deliveries <-chan amqp.Delivery
	channel, err := in.cfg.In.Channel(ctx, func(ch *amqp.Channel) (err error) {
		if err := s.Prepare(ch); err != nil {
			return err
		}
		ch.NotifyClose(one.closes)
		if err := ch.Qos(one.prefetch, 0, false); err != nil {
			return fmt.Errorf("set prefetch: %w", err)
		}
		if deliveries, err = ch.Consume(s.Queue, consumer, false, false, false, false, nil); err != nil {
			return fmt.Errorf("consume from %q: %w", s.Queue, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	one.channel = channel
	one.rules.ordered = !s.Priorities && ordersByPriority(in.cfg.In.Version())
	unused := time.AfterFunc(unusedGrant, func() { one.hold(0, 0) }) // another scanner may have the queue now
	defer unused.Stop()
	in.began(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { one.collect(deliveries) })
	during, end := context.WithCancel(ctx)
	beside.Go(func() { (&binding{in: in, settings: s}).keepBound(during) })
	err = one.run(ctx)
	end()
	one.close()
	beside.Wait()
	return err
}

// collect reads and checks messages as they arrive, while others are stored.
func (s *session) collect(deliveries <-chan amqp.Delivery) {
	defer close(s.over)
	for {
		select {
		case <-s.closed:
			return
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			it := s.rules.read(&d, time.Now())
			s.mu.Lock()
			s.arrive(it)
			s.again = d.Redelivered
			s.mu.Unlock()
			if s.in.cfg.pace.arrived != nil {
				s.in.cfg.pace.arrived()
			}
			s.more.Send()
		}
	}
}

// admit counts a message before it is received. It returns false for all after the first that
// doesn't fit, because messages of an ID keep their order. It also returns false for one to
// reject, which takes little memory without its body.
func (s *session) admit(body, properties int) bool {
	room := s.in.cfg.Room()
	bytes, rejected := itemBytes+copies*body+decoded*properties, 0
	if s.deadLetters && body > s.rules.maxPayload && bytes > room {
		bytes, rejected = itemBytes, body
	}
	s.in.size.add(bytes)
	s.mu.Lock()
	if !s.shut && s.bytes+bytes > room && (s.unacked > 0 || !s.alone(bytes)) {
		s.shut, s.fit = true, s.unacked
	}
	if s.shut {
		s.coming = append(s.coming, arrival{})
		s.mu.Unlock()
		return false
	}
	s.coming = append(s.coming, arrival{bytes: bytes, rejected: rejected})
	s.mu.Unlock()
	s.hold(1, bytes)
	return rejected == 0
}

// alone reports whether a message above the room may be taken; s.mu is held.
func (s *session) alone(bytes int) bool {
	want := min(int64(bytes), s.in.cfg.Large.limit)
	if more := want - s.granted; more > 0 {
		if !s.in.cfg.Large.bytes.TryAcquire(more) {
			s.wants = want
			return false
		}
		s.granted = want
	}
	return true
}

// hold counts messages in memory; numbers below 0 are those that left it. Without any, it gives
// back its part of Large.
func (s *session) hold(n, bytes int) {
	s.mu.Lock()
	s.unacked, s.bytes = s.unacked+n, s.bytes+bytes
	unacked := s.unacked
	if unacked == 0 && len(s.coming) == 0 { // else one is being admitted, or the session ends
		s.release()
	}
	s.mu.Unlock()
	s.in.cfg.Hold(bytes)
	s.in.cfg.Metrics.Unacked.Set(float64(unacked))
}

// release gives back the session's part of Large; s.mu is held.
func (s *session) release() {
	s.in.cfg.Large.bytes.Release(s.granted)
	s.granted = 0
}

// forget gives up what wasn't acked. RabbitMQ delivers it again.
func (s *session) forget() {
	s.mu.Lock()
	unacked, bytes := s.unacked, s.bytes
	s.in.wants = s.wants
	s.release()
	s.mu.Unlock()
	s.hold(-unacked, -bytes)
}

// run carries out batches of what has arrived, one after the other. It never waits for a
// batch to grow. When it returns, no call to Redis is under way. So another consumer gets
// the unacked messages after the others were carried out.
func (s *session) run(ctx context.Context) error {
	work, cancel := outlasting(ctx, stopGrace)
	defer cancel()
	go func() {
		select {
		case <-s.over: // another session may have the messages already
			cancel()
		case <-work.Done():
		}
	}()
	for {
		if err := s.lost(); err != nil {
			return err
		}
		b, more := s.takeBatch()
		if len(b) == 0 && !more {
			s.in.prefetch = max(1, min(s.better(), s.fit))
			return nil
		}
		if len(b) == 0 {
			select {
			case <-s.more:
				continue
			case <-s.in.quiet():
				s.in.runs(ctx)
				continue
			case <-s.over:
				return s.lost()
			case <-ctx.Done():
				return nil
			}
		}
		if err := s.carryOut(ctx, work, b); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if want := s.better(); want != s.prefetch && more && s.mayEnd() {
			s.in.prefetch = want
			return nil
		}
	}
}

// mayEnd reports whether the session may end to begin again. RabbitMQ puts messages that come back
// behind all others that came back before. So a session that ends while RabbitMQ still has such
// messages changes their order. It delivers them first: once another message arrives, it has none.
func (s *session) mayEnd() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unacked == 0 || !s.again
}

// takeBatch returns the next batch; nil if nothing has arrived. Once more is false, nothing
// arrives any more.
func (s *session) takeBatch() (b batch, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, s.arrived = cut(s.arrived)
	return b, !s.full
}

// better returns the prefetch that suits the messages, which is the session's own if
// another one isn't much better.
func (s *session) better() int {
	s.mu.Lock()
	busy := len(s.arrived) >= s.prefetch/2
	s.mu.Unlock()
	return s.in.size.prefetch(s.prefetch, s.in.cfg.Room(), busy)
}

// carryOut carries out a batch and acks it. It tries until all is done, and acks what is
// done after each try. The error says why it gave up.
func (s *session) carryOut(ctx, work context.Context, b batch) error {
	pause := retry.Backoff{Min: pauseMin, Max: pauseMax}
	began := time.Now()
	failing := began
	for {
		err := s.try(work, b, time.Since(began))
		if s.in.cfg.pace.stored != nil {
			s.in.cfg.pace.stored()
		}
		if s.ack(b) != nil {
			return s.lost()
		}
		b = b.undone()
		if len(b) == 0 {
			s.in.runs(ctx)
			return nil
		}
		if errors.Is(err, shard.ErrSuperseded) {
			return s.superseded(work, err)
		}
		err = s.in.fails(cmp.Or(err, errUndone))
		switch {
		case b.short():
			failing = time.Now()
		case time.Since(failing) > s.in.patience(b):
			return fmt.Errorf("left to other scanners: %w", err)
		}
		s.in.waits(ctx, len(b))
		if !s.sleep(ctx, pause.Next()) {
			return s.lost()
		}
	}
}

var errUndone = errors.New("a message is not carried out")

// sleep returns false if the session is over or ctx ends before d has passed.
func (s *session) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.over:
	case <-ctx.Done():
	}
	return false
}

// ack acks the messages that are done: those before the first that isn't with one ack, and
// the others singly. So only messages that aren't done go back to the queue. Earlier
// messages than the batch must be acked. Those to reject are rejected in their turn.
func (s *session) ack(b batch) error {
	last := b.run() - 1 // whose ack is for those before it, too
	for last >= 0 && b[last].rejects {
		last--
	}
	for i, it := range b {
		var err error
		switch {
		case !it.done || !it.rejects && i < last:
			continue
		case it.rejects:
			err = s.channel.Reject(it.delivery.DeliveryTag, false)
		default:
			err = s.channel.Ack(it.delivery.DeliveryTag, i == last)
		}
		if err != nil {
			return err
		}
		s.acked.Sent()
	}
	for _, it := range b {
		if it.done {
			s.hold(-1, -it.bytes)
			s.unnamed = s.unnamed || it.unnamed
		}
	}
	return nil
}

// lost returns why the session ended, nil if its channel is open.
func (s *session) lost() error {
	select {
	case <-s.over:
	default:
		return nil
	}
	return closedBecause(s.closes)
}

// closedBecause returns why no more messages come on a channel.
func closedBecause(closes <-chan *amqp.Error) error {
	select {
	case e := <-closes:
		if e != nil {
			return fmt.Errorf("the channel was closed: %w", amqpconn.Brief(e))
		}
		return errors.New("the channel was closed")
	default:
		return errors.New("the queue was deleted, or its node is gone")
	}
}

// close closes the channel. RabbitMQ then delivers what isn't acked to another consumer, in
// its order.
func (s *session) close() {
	defer close(s.closed)
	s.mu.Lock()
	s.shut = true
	s.mu.Unlock()
	if s.unnamed { // such a message that comes again would be another task
		s.sleep(context.Background(), s.acked.Rest())
	}
	amqpconn.Within(closeTimeout, func() { _ = s.channel.Close() }) // it may be closed already
}

// outlasting returns a context that ends some time after ctx.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		retry.Sleep(longer, by)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}
