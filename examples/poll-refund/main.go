// Command poll-refund asks for the status of a refund until the status is final. If the
// status isn't final, the next step asks again; if asking fails, the task is retried.
package main

import (
	"context"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/task"
)

const topic = "poll-refund"

func main() {
	asked := 0
	app.Main(topic, func(ctx context.Context, a *app.App) error {
		return run(ctx, a, func(context.Context, string) (string, error) {
			if asked++; asked < 4 {
				return "pending", nil
			}
			return "refunded", nil
		})
	})
}

// bank returns the status of a refund.
type bank func(ctx context.Context, refund string) (status string, err error)

func run(ctx context.Context, a *app.App, ask bank) error {
	if err := a.In(ctx, "refund-1", 1, ""); err != nil {
		return err
	}
	return a.Consume(ctx, consumer.Exponential(a.Minutes(1), a.Minutes(30), 20),
		func(ctx context.Context, d task.Delivery) error {
			status, err := ask(ctx, d.ID)
			if err != nil {
				return err
			}
			a.Say("%s is %s", d.ID, status)
			if status != "pending" {
				return nil
			}
			return d.NextWhen(task.In(a.Minutes(1)), d.Payload)
		})
}
