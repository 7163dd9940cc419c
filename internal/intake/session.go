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

const (
	// closeTimeout bounds the orderly close of a channel.
	closeTimeout = time.Second
	// stuckAfter is how long a message waits for room until answers of RabbitMQ, which are behind it,
	// can't be expected.
	stuckAfter = time.Second
	// unacked is the prefetch of each session: two batches, one in Redis and one that arrives. It never
	// changes. RabbitMQ puts messages that come back behind those that came back before. So a session
	// must get all that another one had, or its own would come after the others if it ended.
	unacked = 2 * batchItems
)

// session is one consumer on one channel.
type session struct {
	in          *Intake
	channel     *amqp.Channel
	closes      chan *amqp.Error
	rules       rules
	exchange    string // for refused messages
	deadLetters bool   // Settings.DeadLetters
	tenure      tenure
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
	unacked int            // coming and arrived.
	bytes   int            // of them.
	shut    bool           // nothing more is admitted.
	waiting time.Time      // since when the next message waits for room; zero if none does.
	granted int64          // bytes of Large that it has, until nothing is unacked.
	asking  bool           // for a part of Large.
	room    wake.Broadcast // there is more room, or the session is shut.

	taking context.Context // ends when nothing more is admitted
	stop   func()          // ends it
}

// consume takes messages until ctx ends, and then returns nil. Otherwise the error says why it
// can't go on.
func (in *Intake) consume(ctx context.Context, s Settings) error {
	one := &session{in: in, rules: rules{maxPayload: in.cfg.MaxPayload, key: s.Key}, exchange: s.Refused,
		deadLetters: s.DeadLetters, more: wake.NewSignal(), over: make(chan struct{}), closed: make(chan struct{}),
		closes: make(chan *amqp.Error, 1), tenure: tenure{topic: in.cfg.Topic}}
	one.taking, one.stop = context.WithCancel(ctx)
	defer one.forget()
	if err := one.tenure.begin(ctx); err != nil { // else another scanner may have better luck
		return fmt.Errorf("redis: %w%s", err, in.cfg.Advice(err.Error()))
	}
	if s.Target == "" {
		one.rules.loops = s.Queue
	}
	consumer := "duefleet-intake-" + rand.Text()
	forget := in.cfg.In.Watch(consumer, one.admit)
	var deliveries <-chan amqp.Delivery
	channel, err := in.cfg.In.Channel(ctx, func(ch *amqp.Channel) (err error) {
		if err := s.Prepare(ch); err != nil {
			return err
		}
		ch.NotifyClose(one.closes)
		if err := ch.Qos(unacked, 0, false); err != nil {
			return fmt.Errorf("set prefetch: %w", err)
		}
		if deliveries, err = ch.Consume(s.Queue, consumer, false, false, false, false, nil); err != nil {
			return fmt.Errorf("consume from %q: %w", s.Queue, err)
		}
		return nil
	})
	if err != nil {
		forget()
		return err
	}
	one.channel = channel
	one.rules.ordered = !s.Priorities && ordersByPriority(in.cfg.In.Version())
	in.began(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { one.collect(deliveries) })
	during, end := context.WithCancel(ctx)
	beside.Go(func() { (&binding{in: in, settings: s, stuck: one.stuck}).keepBound(during) })
	err = one.run(ctx)
	end()
	one.close(forget)
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
			s.mu.Unlock()
			if s.in.cfg.pace.arrived != nil {
				s.in.cfg.pace.arrived()
			}
			s.more.Send()
		}
	}
}

// admit counts a message before it is received. One that doesn't fit waits until there is room, and
// those behind it with it. It returns false for one to reject, which takes little memory without its
// body, and for all once the session ends.
func (s *session) admit(body, properties int) (admitted bool, later <-chan struct{}) {
	room := s.in.cfg.Room()
	bytes, rejected := itemBytes+copies*body+decoded*properties, 0
	if s.deadLetters && body > s.rules.maxPayload && bytes > room {
		bytes, rejected = itemBytes, body
	}
	s.tenure.received()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		s.coming = append(s.coming, arrival{})
		return false, nil
	}
	later = s.room.Next()
	if s.bytes+bytes > room && (s.unacked > 0 || !s.alone(bytes)) {
		if s.waiting.IsZero() {
			s.waiting = time.Now()
		}
		return false, later
	}
	s.waiting = time.Time{}
	s.coming = append(s.coming, arrival{bytes: bytes, rejected: rejected})
	s.count(1, bytes)
	return rejected == 0, nil
}

// stuck reports whether no message was read for a while because there is no room.
func (s *session) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.waiting.IsZero() && time.Since(s.waiting) > stuckAfter
}

// count counts messages in memory; numbers below 0 are those that left it. s.mu is held.
func (s *session) count(n, bytes int) {
	s.unacked, s.bytes = s.unacked+n, s.bytes+bytes
	s.in.cfg.Hold(bytes)
	if s.unacked == 0 {
		s.in.cfg.Large.bytes.Release(s.granted) // another intake takes it at once
		s.granted = 0
	}
	s.in.cfg.Metrics.Unacked.Set(float64(s.unacked))
	if n < 0 {
		s.room.Fire()
	}
}

// shutOut has all messages that come from now on come without bodies, and not be counted.
func (s *session) shutOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.shut = true
	s.room.Fire()
}

// forget gives up what wasn't acked. RabbitMQ delivers it again.
func (s *session) forget() {
	s.shutOut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(-s.unacked, -s.bytes)
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
	look := time.NewTicker(s.in.cfg.pace.look)
	defer look.Stop()
	quiet := s.in.quiet()
	for {
		if err := s.lost(); err != nil {
			return err
		}
		b := s.takeBatch()
		if len(b) == 0 {
			select {
			case <-s.more:
				continue
			case <-quiet:
				s.in.runs(ctx)
				continue
			case <-look.C:
				s.tenure.look(work, s.ping)
				continue
			case <-s.over:
				return s.lost()
			case <-ctx.Done():
				return nil
			}
		}
		if err := s.carryOut(ctx, work, b); errors.Is(err, shard.ErrStale) {
			return nil // another session tells whether it has the queue
		} else if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		quiet = s.in.quiet()
	}
}

// takeBatch returns the next batch; nil if nothing has arrived.
func (s *session) takeBatch() (b batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, s.arrived = cut(s.arrived)
	return b
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
		if errors.Is(err, shard.ErrStale) {
			return err
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
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for _, it := range b {
		if it.done {
			n, bytes = n+1, bytes+it.bytes
			s.unnamed = s.unnamed || it.unnamed
		}
	}
	s.count(-n, -bytes)
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
// its order. It calls forget once no more messages come.
func (s *session) close(forget func()) {
	defer close(s.closed)
	s.shutOut()
	if s.unnamed { // such a message that comes again would be another task
		s.sleep(context.Background(), s.acked.Rest())
	}
	amqpconn.Within(closeTimeout, func() {
		_ = s.channel.Close() // it may be closed already
		forget()
	})
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
