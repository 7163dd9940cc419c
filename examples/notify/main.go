// Command notify calls a receiver, and again after 1, 3, 5 and so on minutes until the
// receiver answers, at most ten times. Then the task is parked as abnormal: `scanner
// parked ls` shows it, and `scanner parked replay` starts it again.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/task"
)

const topic = "notify"

func main() {
	receiver := os.Getenv("RECEIVER") // for example http://127.0.0.1:8080/paid
	app.Main(topic, func(ctx context.Context, a *app.App) error { return run(ctx, a, receiver) })
}

func run(ctx context.Context, a *app.App, receiver string) error {
	if err := a.In(ctx, "payment-1", 0, `{"paid":true}`); err != nil {
		return err
	}
	return a.Consume(ctx, consumer.Linear(a.Minutes(1), 10), func(ctx context.Context, d task.Delivery) error {
		if err := post(ctx, receiver, d.Payload); err != nil {
			return fmt.Errorf("abnormal: %w", err)
		}
		a.Say("%s is notified", d.ID)
		return nil
	})
}

func post(ctx context.Context, receiver string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, receiver, bytes.NewReader(body))
	if err != nil {
		return consumer.Park(err) // another attempt can't help
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answers %s", answer.Status)
	}
	return nil
}
