// Command reminders sends a push message some minutes after an event. The task's ID is the
// user's name, so a newer event of the same user replaces the task.
package main

import (
	"context"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/task"
)

const topic = "reminders"

func main() { app.Main(topic, run) }

// event is called when a user puts something into the basket.
func event(ctx context.Context, a *app.App, user, item string) error {
	return a.In(ctx, user, 10, item)
}

func run(ctx context.Context, a *app.App) error {
	for _, e := range [][2]string{{"ann", "a book"}, {"bob", "a lamp"}, {"ann", "a chair"}} {
		if err := event(ctx, a, e[0], e[1]); err != nil {
			return err
		}
	}
	return a.Consume(ctx, consumer.Fixed(a.Minutes(1), 5), func(_ context.Context, d task.Delivery) error {
		a.Say("to %s: your basket still holds %s", d.ID, d.Payload)
		return nil
	})
}
