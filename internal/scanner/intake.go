package scanner

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/window"
)

// inbound is for the intakes of all topics. Each has a connection of its own. It stands still while
// its topic has no room in memory, and a message that ends it ends no other one.
type inbound struct {
	connection forward.Config
	budget     *window.Budget // of the scanner, for the messages of the intakes
	large      *intake.Large  // for those that are larger than their topic's share
	kept       atomic.Int64   // connections that are kept up
}

// connect keeps a connection for the topic's intake up until the caller calls end, also after ctx.
func (t *topic) connect(ctx context.Context) (c *forward.Connection, end func(), err error) {
	cfg := t.inbound.connection
	cfg.Name, cfg.Log = cfg.Name+" "+t.name, t.log.With("connection", "intake")
	if c, err = forward.New(cfg); err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { _ = c.Run(running) }) // it returns no error
	t.inbound.kept.Add(1)
	return c, func() {
		cancel()
		ended.Wait()
		t.inbound.kept.Add(-1)
	}, nil
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
		Exchange: in.Exchange, Type: in.Type, Queue: in.Queue, Refused: in.Refused(), Canary: in.Canary(),
		Declare: s.Declare != nil,
	}}
}

// takeIn takes messages of AMQP clients while the topic has an intake, until ctx ends.
func (t *topic) takeIn(ctx context.Context) {
	connection, end, err := t.connect(ctx)
	if err != nil { // never: the connections to publish on have the same settings
		t.log.ErrorContext(ctx, "no connection for the intake", "error", err)
		return
	}
	defer end()
	for in, on := t.inlet(); on && ctx.Err() == nil; in, on = t.inlet() {
		t.takeInBy(ctx, connection, in)
	}
}

// takeInBy runs the intake until its settings change, or ctx ends.
func (t *topic) takeInBy(ctx context.Context, c *forward.Connection, in inlet) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		t.inForce.Await(running, func() bool {
			now, on := t.inlet()
			return !on || now != in
		})
	}()
	t.runIntake(running, c, in)
}

// runIntake runs the intake until ctx ends. Its messages count for the scanner's
// memory as if they belonged to one more topic.
func (t *topic) runIntake(ctx context.Context, c *forward.Connection, of inlet) {
	s := intake.Settings{Queue: of.Queue, Refused: of.Refused, Target: of.target, Key: of.key,
		Priorities: of.priorities, DeadLetters: of.Declare, Prepare: of.Prepare}
	if of.Declare {
		s.Bind = of.Bind
	}
	cfg := intake.Config{
		Topic: t.store, Tasks: t.tasks, MaxPayload: t.maxPayload, In: c, Out: t.outbound,
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
