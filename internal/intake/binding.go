package intake

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/task"
)

// binding makes the bindings again while a session runs, or while the topic is paused. Somebody
// may delete the exchange, and a publisher declares it again. RabbitMQ then confirms what is
// published there, and drops it.
type binding struct {
	in       *Intake
	settings Settings
	alone    bool          // without a session
	stuck    func() bool   // of the session: RabbitMQ's answers can't be received
	channel  *amqp.Channel // stays open; nil before its first use
}

// KeepBound makes the exchanges, queues and bindings, and then makes the bindings again until ctx
// ends. It takes no messages: they wait in the queue of a paused topic. It does nothing if others
// make the bindings.
func (in *Intake) KeepBound(ctx context.Context, s Settings) {
	if s.Bind == nil || connected(ctx, in.cfg.In) != nil {
		return
	}
	b := &binding{in: in, settings: s, alone: true}
	if b.wanted(ctx) {
		b.check(ctx, b.prepare(ctx))
	}
	b.keepBound(ctx)
}

// wanted reports whether the connection is open and the topic is still there. The command that
// removes a topic may unbind its queue, and only consumers make it wait.
func (b *binding) wanted(ctx context.Context) bool {
	if open, _, _ := b.in.cfg.In.State(); !open { // the connection logs that itself
		return false
	}
	_, err := b.in.cfg.Topic.Placement(ctx)
	return !errors.Is(err, task.ErrUnknownTopic)
}

// keepBound makes the bindings again every pace.bind at the latest, until ctx ends. It does
// nothing if others make them.
func (b *binding) keepBound(ctx context.Context) {
	if b.settings.Bind == nil {
		return
	}
	half := b.in.cfg.pace.bind / 2
	for retry.Sleep(ctx, half+rand.N(half)) { //nolint:gosec // jitter needs no secrecy
		if b.alone && b.wanted(ctx) || !b.alone && !b.stuck() {
			b.check(ctx, b.again(ctx))
		}
	}
	if b.channel != nil {
		go func() { _ = b.channel.Close() }() // may be closed already
	}
}

// check counts and logs an error.
func (b *binding) check(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		b.in.cfg.Count("intake_binding")
		b.in.logs.unbound.Log(ctx, "error", err)
	}
}

// deletion is how long RabbitMQ may take to delete an exchange. A binding to one that is made again
// meanwhile may be there and route nothing (seen with 4.3.6), and binding again changes nothing.
// Publishers get an error as long as the exchange is missing.
const deletion = 500 * time.Millisecond

// again makes the bindings. If an exchange or a queue is missing, it makes everything.
func (b *binding) again(ctx context.Context) error {
	err := b.bind(ctx)
	if !amqpconn.Refused(err, amqp.NotFound) || !retry.Sleep(ctx, deletion) {
		return err
	}
	missing := err
	b.in.cfg.Count("intake_binding")
	if err = b.prepare(ctx); err != nil {
		return err
	}
	b.in.cfg.Log.WarnContext(ctx, "intake makes again what was missing", "error", missing)
	return nil
}

func (b *binding) prepare(ctx context.Context) (err error) {
	b.channel, err = b.in.cfg.In.Channel(ctx, b.settings.Prepare)
	return err
}

func (b *binding) bind(ctx context.Context) (err error) {
	if b.channel == nil || b.channel.IsClosed() {
		b.channel, err = b.in.cfg.In.Channel(ctx, b.settings.Bind)
		return err
	}
	done := make(chan error, 1)
	go func() { done <- b.settings.Bind(b.channel) }()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
