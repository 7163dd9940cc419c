package intake

import (
	"context"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
)

// binding makes the queue's binding again while a session runs. Somebody may delete the
// exchange, and a publisher declares it again. RabbitMQ then confirms what is published
// there, and drops it.
type binding struct {
	in       *Intake
	settings Settings
	channel  *amqp.Channel // stays open; nil before its first use
}

// keepBound makes the binding again every pace.bind at the latest, until ctx ends. It does
// nothing if others make the binding.
func (b *binding) keepBound(ctx context.Context) {
	if b.settings.Bind == nil {
		return
	}
	half := b.in.cfg.pace.bind / 2
	for retry.Sleep(ctx, half+rand.N(half)) { //nolint:gosec // jitter needs no secrecy
		if err := b.again(ctx); err != nil && ctx.Err() == nil {
			b.in.cfg.Count("intake_binding")
			b.in.logs.unbound.Log(ctx, "error", err)
		}
	}
	if b.channel != nil {
		go func() { _ = b.channel.Close() }() // may be closed already
	}
}

// deletion is how long RabbitMQ may take to delete an exchange. A binding to one that is made again
// meanwhile may be there and route nothing (seen with 4.3.6), and binding again changes nothing.
// Publishers get an error as long as the exchange is missing.
const deletion = 500 * time.Millisecond

// again makes the binding. If the exchange is missing, it makes everything.
func (b *binding) again(ctx context.Context) error {
	err := b.bind(ctx)
	if !amqpconn.Refused(err, amqp.NotFound) || !retry.Sleep(ctx, deletion) {
		return err
	}
	missing := err
	if b.channel, err = b.in.cfg.In.Channel(ctx, b.settings.Prepare); err != nil {
		return err
	}
	b.in.cfg.Log.WarnContext(ctx, "intake makes again what was missing", "error", missing)
	return nil
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
