package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	// patience bounds whatever a test waits for: what takes longer hangs.
	patience = 60 * time.Second
	// marker is the app-id of the message that ends a queue.
	marker = "end-of-queue"
)

// world is one test's fleet: a corner of the servers, a configuration, scanners,
// consumers, and the ledger.
type world struct {
	t        *testing.T
	dir      string
	config   string
	settings fleet.Settings
	redis    redis.UniversalClient
	recorder fleet.Recorder
	scanners []*fleet.Scanner
	// tap sees every message beside the ledger. Defaults to nothing.
	tap func(fleet.Delivery)

	mu       sync.Mutex
	messages []fleet.Delivery
	ends     map[string]chan struct{}
}

// newWorld writes the configuration and starts nothing.
func newWorld(t *testing.T, topics map[string]fleet.Topic) *world {
	t.Helper()
	settings := fleet.Settings{Topics: topics}
	settings.RedisAddr, settings.RedisPrefix = stacktest.Redis(t)
	settings.RabbitMQURL = stacktest.RabbitMQ(t)
	return newWorldOn(t, settings, stacktest.RedisOptions(settings.RedisAddr))
}

func (w *world) write() {
	w.t.Helper()
	if err := fleet.WriteConfig(w.config, w.settings.Document()); err != nil {
		w.t.Fatal(err)
	}
}

// start adds n scanners, all at once.
func (w *world) start(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	first := len(w.scanners)
	w.scanners = append(w.scanners, make([]*fleet.Scanner, n)...)
	var g errgroup.Group
	for i := first; i < first+n; i++ {
		g.Go(func() (err error) {
			w.scanners[i], err = fleet.StartScanner(ctx, fleet.ScannerConfig{
				Binary: programs.Scanner, Config: w.config, Dir: w.dir, Name: fmt.Sprintf("scanner-%d", i+1),
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// stop ends all scanners and holds them to their exit code.
func (w *world) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := fleet.StopAll(ctx, w.scanners); err != nil {
		w.t.Error(err)
	}
	w.checkLogs()
	w.scanners = nil
}

// checkLogs: no scanner may panic or race, whatever else it says.
func (w *world) checkLogs() {
	for _, s := range w.scanners {
		if s == nil {
			continue
		}
		log, err := os.ReadFile(s.Log())
		if err != nil {
			w.t.Error(err)
		}
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if strings.Contains(string(log), bad) {
				w.t.Errorf("%s says %s", s.Log(), bad)
			}
		}
		if w.t.Failed() {
			w.t.Logf("the end of %s:\n%s", filepath.Base(s.Log()), log[max(0, len(log)-6000):])
		}
	}
}

// end stops what still runs after the test.
func (w *world) end() {
	for _, s := range w.scanners {
		if s != nil {
			_ = s.Resume()
		}
	}
	w.stop()
}

// consume enters all that arrives in a queue into the ledger, and keeps it.
func (w *world) consume(queues ...string) {
	w.t.Helper()
	for _, queue := range queues {
		end := make(chan struct{})
		w.ends[queue] = end
		c, err := fleet.NewConsumer(fleet.ConsumerConfig{
			URL: w.settings.RabbitMQURL, Queue: queue,
			Handle: func(d fleet.Delivery) { w.arrived(d, end) },
		})
		if err != nil {
			w.t.Fatal(err)
		}
		var g errgroup.Group
		g.Go(func() error { return c.Run(w.t.Context()) })
		w.t.Cleanup(func() { _ = g.Wait() })
		select {
		case <-c.Ready():
		case <-time.After(patience):
			w.t.Fatalf("queue %s can't be consumed from", queue)
		}
	}
}

func (w *world) arrived(d fleet.Delivery, end chan<- struct{}) {
	if d.AppId == marker {
		close(end)
		return
	}
	if w.tap != nil {
		w.tap(d)
	}
	w.recorder.Ledger.Delivered(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages = append(w.messages, d)
}

// delivered are the messages of a task of topic orders so far.
func (w *world) delivered(id string) []fleet.Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []fleet.Delivery
	for _, d := range w.messages {
		if d.Type == "orders" && d.MessageId == id {
			found = append(found, d)
		}
	}
	return found
}

// await fails the test if the condition doesn't come true.
func (w *world) await(what string, condition func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := fleet.Await(ctx, condition); err != nil {
		w.t.Fatalf("waited %s in vain: %s", patience, what)
	}
}

// stays tells whether the condition remains true for d.
func (w *world) stays(d time.Duration, condition func() bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	err := fleet.Await(ctx, func() bool { return !condition() })
	return errors.Is(err, context.DeadlineExceeded)
}

// holds fails the test if the condition becomes false within d: for what must
// not happen.
func (w *world) holds(what string, d time.Duration, condition func() bool) {
	w.t.Helper()
	if !w.stays(d, condition) {
		w.t.Fatalf("did not hold for %s: %s", d, what)
	}
}

// finish waits until all that was promised arrived and nothing is stored, stops
// the scanners, empties the queues, and returns what the ledger found.
func (w *world) finish() fleet.Report {
	w.t.Helper()
	w.awaitEmpty()
	w.stop()
	w.drain()
	return w.recorder.Ledger.Check()
}

func (w *world) awaitEmpty() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := fleet.Await(ctx, func() bool { return w.recorder.Ledger.Missing() == 0 }); err != nil {
		w.t.Errorf("%d tasks are missing after %s", w.recorder.Ledger.Missing(), patience)
		return
	}
	stored := func() (n int64) {
		for _, t := range w.status().Topics {
			n += t.Pending
		}
		return n
	}
	if err := fleet.Await(ctx, func() bool { return stored() == 0 }); err != nil {
		w.t.Errorf("%d tasks are stored after all arrived; status %+v", stored(), w.status())
	}
}

// drain returns when every message that is in a queue now has arrived: a marker
// behind them has.
func (w *world) drain() {
	w.t.Helper()
	ch := w.channel()
	for queue, end := range w.ends {
		if err := ch.PublishWithContext(w.t.Context(), "", queue, false, false, amqp.Publishing{AppId: marker}); err != nil {
			w.t.Fatal(err)
		}
		select {
		case <-end:
		case <-time.After(patience):
			w.t.Fatalf("queue %s is not empty after %s", queue, patience)
		}
	}
}

// channel is one for the test's own doings at the broker.
func (w *world) channel() *amqp.Channel {
	w.t.Helper()
	conn, err := amqp.Dial(w.settings.RabbitMQURL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	return ch
}

// exchange makes an exchange, and a queue bound to it unless queue is "".
func (w *world) exchange(kind, name, queue, key string) {
	w.t.Helper()
	ch := w.channel()
	if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		w.t.Fatal(err)
	}
	if queue != "" {
		w.queue(ch, name, queue, key)
	}
}

func (w *world) queue(ch *amqp.Channel, exchange, queue, key string) {
	w.t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		w.t.Fatal(err)
	}
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status() fleet.Status {
	w.t.Helper()
	s, err := fleet.ReadStatus(w.t.Context(), programs.Scanner, w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// scanner runs one of its verbs with the world's configuration.
func (w *world) scanner(args ...string) fleet.Output {
	w.t.Helper()
	return run(w.t, fleet.Command{Path: programs.Scanner, Args: append(args, "--config", w.config)})
}

// producer runs one of its verbs with the world's configuration.
func (w *world) producer(args ...string) fleet.Output {
	w.t.Helper()
	return run(w.t, fleet.Command{Path: programs.Producer, Args: append(args, "--config", w.config)})
}

func run(t *testing.T, c fleet.Command) fleet.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := c.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// must is for a call that has to end with 0.
func must(t *testing.T, out fleet.Output) fleet.Output {
	t.Helper()
	if out.Code != 0 {
		t.Fatalf("code %d, want 0; stderr: %s", out.Code, out.Stderr)
	}
	return out
}

func (w *world) schedule(orders ...fleet.Order) {
	w.t.Helper()
	const batch = 1000
	for len(orders) > 0 {
		n := min(batch, len(orders))
		if err := w.recorder.Schedule(w.t.Context(), orders[:n]...); err != nil {
			w.t.Fatal(err)
		}
		orders = orders[n:]
	}
}

// orders are n tasks of a topic, due evenly over a span of time from a start,
// with a payload of size bytes that tells them apart.
func orders(topic, prefix string, n int, start time.Time, over time.Duration, size int) []fleet.Order {
	all := make([]fleet.Order, n)
	for i := range all {
		id := fmt.Sprintf("%s-%06d", prefix, i)
		payload := id + strings.Repeat(".", max(0, size-len(id)))
		all[i] = order(topic, id, start.Add(over*time.Duration(i)/time.Duration(n)), payload)
	}
	return all
}

func order(topic, id string, due time.Time, payload string) fleet.Order {
	return fleet.Order{
		Request: producer.Request{Topic: topic, ID: id, Payload: []byte(payload)},
		Due:     due.Truncate(time.Millisecond),
	}
}
