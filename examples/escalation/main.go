// Command escalation alerts Ann. If nobody acknowledges the alarm within 5 minutes, it
// alerts Bob, and after 5 more minutes Cid. An acknowledgement cancels the task, which
// ends the chain.
package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/task"
)

const topic = "escalation"

func main() { app.Main(topic, run) }

func run(ctx context.Context, a *app.App) error {
	if err := a.In(ctx, "fire", 0, "0"); err != nil {
		return err
	}
	onCall := []string{"Ann", "Bob", "Cid"}
	return a.Consume(ctx, consumer.Fixed(a.Minutes(0.1), 10), func(_ context.Context, d task.Delivery) error {
		step, err := strconv.Atoi(string(d.Payload))
		if err != nil || step < 0 || step >= len(onCall) {
			return consumer.Park(errors.New("the payload is not a step"))
		}
		a.Say("%s is alerted: %s", onCall[step], d.ID)
		if step+1 == len(onCall) {
			return nil
		}
		return d.NextWhen(task.In(a.Minutes(5)), []byte(strconv.Itoa(step+1)))
	})
}

// acknowledge ends an alarm, whether its next step waits or is being handled.
func acknowledge(ctx context.Context, a *app.App, alarm string) error {
	if err := a.Cancel(ctx, topic, alarm); err != nil && !errors.Is(err, task.ErrNotFound) {
		return err
	}
	return nil
}
