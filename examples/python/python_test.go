// Package python_test runs the Python program against a scanner.
package python_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

var programs fleet.Binaries

func TestMain(m *testing.M) { os.Exit(fleet.RunTests(m, fleet.BuildConfig{}, &programs)) }

// TestOrders: the program prints each answer, and only the order that is due is delivered.
func TestOrders(t *testing.T) {
	t.Parallel()
	interpreter, url := servertest.Python(t, "pika"), startFleet(t)
	check.Until(t, "the intake", func() bool { return consumers(t, url, "duefleet.orders.intake") > 0 })
	check.Until(t, "the topic's queue", func() bool { return consumers(t, url, "orders.due") == 0 })
	channel := servertest.Channel(t, url)
	arrived, err := channel.Consume("orders.due", "", true, false, false, false, nil)
	check.OK(t, err)
	cmd := exec.CommandContext(check.Context(t), interpreter, "orders.py")
	cmd.Env = append(os.Environ(), "AMQP_URL="+url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{
		"order-1 is paid: True",
		"order-1 is paid again: False",
		"order-2 has more time: True",
		"order-3 is due at once: True",
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 5 || strings.Join(lines[:4], "\n") != strings.Join(want, "\n") ||
		!strings.HasPrefix(lines[4], "refused: ") {
		t.Errorf("the program printed\n%s", out)
	}
	first := check.Receive(t, "the task that is due", arrived)
	check.Equal(t, "the task that is due", first.MessageId+" "+string(first.Body), `order-3 {"id":"order-3"}`)
}

// consumers returns how many consumers a queue has, -1 if there is no such queue.
func consumers(t *testing.T, url, queue string) int {
	t.Helper()
	q, err := servertest.Channel(t, url).QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil { // RabbitMQ then closes the channel
		return -1
	}
	return q.Consumers
}

// startFleet starts a scanner with the topic orders, and returns the URL of its vhost.
func startFleet(t *testing.T) string {
	t.Helper()
	settings := fleet.Settings{Topics: map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", fleet.Topic{
			"routing_key": "order.#",
			"declare":     map[string]any{"type": "topic", "queue": "orders.due", "queue_type": "classic"},
			"intake":      map[string]any{"exchange": "orders.delayed", "type": "topic"},
		}),
	}}
	settings.RedisAddr, settings.RedisPrefix = servertest.Redis(t)
	settings.RabbitMQURL = servertest.RabbitMQ(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	check.OK(t, fleet.WriteConfig(config, settings.Document()))
	s, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{Binary: programs.Scanner, Config: config, Dir: dir})
	check.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := fleet.StopAll(ctx, []*fleet.Scanner{s}); err != nil {
			t.Error(err)
		}
	})
	return settings.RabbitMQURL
}
