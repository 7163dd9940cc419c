// Command order-timeout cancels an order that isn't paid within 30 minutes. A payment
// cancels the task.
package main

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/task"
)

const topic = "order-timeout"

func main() { app.Main(topic, run) }

func run(ctx context.Context, a *app.App) error {
	for _, order := range []string{"order-1", "order-2"} {
		if err := a.In(ctx, order, 30, ""); err != nil {
			return err
		}
	}
	if err := pay(ctx, a, "order-1"); err != nil {
		return err
	}
	return a.Consume(ctx, consumer.Exponential(a.Minutes(0.1), a.Minutes(5), 10),
		func(_ context.Context, d task.Delivery) error {
			// A paid order has no task any more. If it is paid at this very moment, the
			// orders' own database must decide.
			a.Say("%s is cancelled: it wasn't paid within 30 minutes", d.ID)
			return nil
		})
}

func pay(ctx context.Context, a *app.App, order string) error {
	err := a.Cancel(ctx, topic, order)
	if errors.Is(err, task.ErrNotFound) {
		a.Say("%s is paid too late", order)
		return nil
	}
	if err == nil {
		a.Say("%s is paid", order)
	}
	return err
}
