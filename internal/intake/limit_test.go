package intake

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/httpapi"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// door takes a delay from a client. The error says why it is refused.
type door func(ctx context.Context, delay time.Duration, text string) error

// inOfProducer schedules what the flag --in of the program producer has.
func inOfProducer(tasks *producer.Client) door {
	return func(ctx context.Context, _ time.Duration, text string) error {
		when, err := duetime.When("in", text)
		if err == nil {
			_, err = tasks.Schedule(ctx, producer.Request{Topic: fixture.Orders, ID: "flag", When: when})
		}
		return err
	}
}

// inOfHTTP schedules by HTTP with a server that ends with the test.
func inOfHTTP(t *testing.T, tasks *producer.Client) door {
	t.Helper()
	server, err := httpapi.New(httpapi.Config{Listen: "127.0.0.1:0", Tasks: tasks, Batches: tasks, MaxPayload: maxPayload,
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	check.OK(t, server.Listen())
	check.Background(t, "the server", server.Run)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: check.Hang}
	return func(ctx context.Context, _ time.Duration, text string) error {
		at := "http://" + server.Addr() + "/v1/topics/orders/tasks/http?in=" + url.QueryEscape(text)
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, at, nil)
		check.OK(t, err)
		answer, err := client.Do(request)
		check.OK(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		check.OK(t, err)
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%d: %s", answer.StatusCode, body)
		}
		return nil
	}
}

// inHeader reads a message of the intake with the header.
func inHeader(name string, value func(delay time.Duration, text string) any) door {
	return func(_ context.Context, delay time.Duration, text string) error {
		d := &amqp.Delivery{MessageId: "a", Headers: amqp.Table{name: value(delay, text)}}
		if it := (rules{maxPayload: maxPayload}).read(d, time.Now()); it.refusal != nil {
			return it.refusal.why
		}
		return nil
	}
}

// TestEachDoorTakesTheSameDelays: the longest is task.MaxAhead, to the millisecond.
func TestEachDoorTakesTheSameDelays(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	tasks, err := producer.New(producer.Config{Redis: r.Client, Prefix: r.Prefix})
	check.OK(t, err)
	t.Cleanup(func() { _ = tasks.Close() })
	doors := map[string]door{
		"producer --in": inOfProducer(tasks),
		"HTTP":          inOfHTTP(t, tasks),
		HeaderIn:        inHeader(HeaderIn, func(_ time.Duration, text string) any { return text }),
		HeaderDelay:     inHeader(HeaderDelay, func(delay time.Duration, _ string) any { return delay.Milliseconds() }),
		HeaderDelay + " as text": inHeader(HeaderDelay, func(delay time.Duration, _ string) any {
			return fmt.Sprint(delay.Milliseconds())
		}),
	}
	for text, row := range map[string]struct {
		delay time.Duration
		taken bool
	}{
		"36524d":    {task.MaxAhead - 24*time.Hour, true},
		"36525d":    {task.MaxAhead, true},
		"36525d1ms": {task.MaxAhead + time.Millisecond, false},
		"36526d":    {task.MaxAhead + 24*time.Hour, false},
	} {
		for name, ask := range doors {
			err := ask(t.Context(), row.delay, text)
			if row.taken && err != nil || !row.taken && (err == nil || !strings.Contains(err.Error(), "at most 100 years")) {
				t.Errorf("%s: %s: got %v, want it taken: %v", name, text, err, row.taken)
			}
		}
	}
}
