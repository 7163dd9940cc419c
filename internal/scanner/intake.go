package scanner

import (
	"context"
	"sync"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/internal/window"
)

// inbound is the connection on which the intakes of all topics receive. It is open while
// one of them is on.
type inbound struct {
	connection *forward.Connection
	budget     *window.Budget // of the scanner, for the messages of the intakes
	large      *intake.Large  // for those that are larger than their topic's share

	mu      sync.Mutex
	users   int
	changed wake.Broadcast
}

// use opens the connection for one more user, until the user calls release.
func (b *inbound) use() (release func()) {
	b.add(1)
	return func() { b.add(-1) }
}

func (b *inbound) add(users int) {
	b.mu.Lock()
	b.users += users
	b.mu.Unlock()
	b.changed.Fire()
}

func (b *inbound) used() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.users > 0
}

// await waits until the connection is used, or isn't. It returns false if ctx ends first.
func (b *inbound) await(ctx context.Context, used bool) bool {
	for {
		changed := b.changed.Next()
		if b.used() == used {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// run keeps the connection up while it is used, until ctx ends.
func (b *inbound) run(ctx context.Context) error {
	for b.await(ctx, true) {
		running, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			b.await(running, false)
		}()
		err := b.connection.Run(running)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// inlet has the settings in force of the intake.
type inlet struct {
	forward.Inlet
	target     string
	key        intake.Key
	priorities bool
	paused     bool // it takes nothing, and keeps its queue bound
}

// inlet returns the topic's intake; on is false while there is nothing to do for it.
func (t *topic) inlet() (of inlet, on bool) {
	s, paused := t.inForce.Settings(), t.inForce.Paused()
	if !s.TakesIn() || paused && s.Declare == nil {
		return inlet{}, false
	}
	of = inletOf(*s)
	of.paused = paused
	return of, true
}

func inletOf(s config.Topic) inlet {
	in := s.Intake
	key := intake.Key{Header: in.ByHeader(), None: in.Key == config.IntakeKeyNone}
	return inlet{target: s.Exchange, key: key, priorities: in.Priorities, Inlet: forward.Inlet{
		Exchange: in.Exchange, Type: in.Type, Queue: in.Queue, Refused: in.Refused(), Declare: s.Declare != nil,
	}}
}

// takeIn takes messages of AMQP clients while the topic has an intake, until ctx ends.
func (t *topic) takeIn(ctx context.Context) {
	defer t.inbound.use()()
	for in, on := t.inlet(); on && ctx.Err() == nil; in, on = t.inlet() {
		t.takeInBy(ctx, in)
	}
}

// takeInBy runs the intake until its settings change, or ctx ends.
func (t *topic) takeInBy(ctx context.Context, in inlet) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		t.inForce.Await(running, func() bool {
			now, on := t.inlet()
			return !on || now != in
		})
	}()
	t.runIntake(running, in)
}

// runIntake runs the intake until ctx ends. Its messages count for the scanner's
// memory as if they belonged to one more topic.
func (t *topic) runIntake(ctx context.Context, of inlet) {
	s := intake.Settings{Queue: of.Queue, Refused: of.Refused, Target: of.target, Key: of.key,
		Priorities: of.priorities, DeadLetters: of.Declare, Prepare: of.Prepare}
	if of.Declare {
		s.Bind = of.Bind
	}
	cfg := intake.Config{
		Topic: t.store, Tasks: t.tasks, MaxPayload: t.maxPayload, In: t.inbound.connection, Out: t.outbound,
		Large: t.inbound.large, Metrics: t.metrics.intake, Count: t.health.errors, Log: t.log, Advice: adviceOnRedis,
	}
	if of.paused {
		intake.New(cfg).KeepBound(ctx, s)
		return
	}
	held := t.inbound.budget.Window(0)
	defer held.Close()
	cfg.Room, cfg.Hold = held.Own, func(bytes int) { held.Free(0, 0, -bytes) }
	in := intake.New(cfg)
	t.intake.Store(in)
	defer t.intake.Store(nil)
	in.Serve(ctx, s)
}

// intakeTrouble returns why the topic's intake takes nothing; "" if it does, or is off.
func (t *topic) intakeTrouble() string {
	if in := t.intake.Load(); in != nil {
		return in.Trouble()
	}
	return ""
}
