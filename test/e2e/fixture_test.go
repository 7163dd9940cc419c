// Package e2e_test tests whole fleets from outside, through their stable interfaces: the
// programs' flags, output and exit codes, the configuration, the messages and the
// metrics. The servers are real, and the scanners are processes.
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/race"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programs holds the two programs, built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	check.Parallel(3)
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{Race: race.Detects}, &programs))
}

const (
	// patience is the limit for a scanner's end: twice its shutdown_timeout. A scanner
	// that takes longer hangs.
	patience = 2 * shutdownTimeout
	// shutdownTimeout is long, so that exit codes don't depend on the machine's speed.
	shutdownTimeout = 60 * time.Second
	// seldom is the shortest time between two checks of a costly condition.
	seldom = 50 * time.Millisecond
	// marker is the app-id of the last message in a queue.
	marker = "end-of-queue"
)

// fixture is one test's fleet: a sandbox on the servers, a configuration, scanners,
// consumers and the ledger.
type fixture struct {
	t        *testing.T
	dir      string
	config   string
	settings fleet.Settings
	// own and redis are for the test's own access to Redis. enrolled is true if the programs
	// use Redis users with limited rights.
	own      redis.UniversalOptions
	redis    redis.UniversalClient
	enrolled bool
	recorder fleet.Recorder
	scanners []*fleet.Scanner
	// scannerEnv is added to the scanners' environment.
	scannerEnv []string
	// tap receives every message, as the ledger does. Defaults to none.
	tap func(fleet.Delivery)

	mu       sync.Mutex
	frozen   time.Time // the ledger's time while it stands still; otherwise zero
	messages messageLog
	ends     map[string]chan struct{}
}

// newFixture writes the configuration and starts nothing.
func newFixture(t *testing.T, topics map[string]fleet.Topic) *fixture {
	t.Helper()
	settings := fleet.Settings{Topics: topics}
	settings.RedisAddr, settings.RedisPrefix = servertest.Redis(t)
	settings.RabbitMQURL = servertest.RabbitMQ(t)
	return newFixtureOn(t, settings, servertest.RedisOptions(settings.RedisAddr))
}

// now returns the ledger's time.
func (w *fixture) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen.IsZero() {
		return time.Now()
	}
	return w.frozen
}

// pause sets paused for the topics in the file. The ledger's time stands still while
// topics are paused. So a change counts as made before the due time, however long it
// takes.
func (w *fixture) pause(paused bool) {
	w.t.Helper()
	for name, topic := range w.settings.Topics {
		w.settings.Topics[name] = topic.With(fleet.Topic{"paused": paused})
	}
	w.mu.Lock()
	w.frozen = time.Time{}
	if paused {
		w.frozen = time.Now()
	}
	w.mu.Unlock()
	w.write()
}

func (w *fixture) write() {
	w.t.Helper()
	for _, r := range []role{producerRole, operatorRole, scannerRole} {
		check.OK(w.t, fleet.WriteConfig(w.file(r), w.document(r)))
	}
}

// start adds n scanners, all at the same time.
func (w *fixture) start(n int) {
	w.t.Helper()
	ctx := check.Context(w.t)
	first := len(w.scanners)
	w.scanners = append(w.scanners, make([]*fleet.Scanner, n)...)
	var g errgroup.Group
	for i := first; i < first+n; i++ {
		g.Go(func() (err error) {
			w.scanners[i], err = fleet.StartScanner(ctx, fleet.ScannerConfig{
				Binary: programs.Scanner, Config: w.config, Dir: w.dir, Name: fmt.Sprintf("scanner-%d", i+1), Env: w.scannerEnv,
			})
			return err
		})
	}
	check.OK(w.t, g.Wait())
}

// awaitTopic waits until tasks can be scheduled into a topic that was added while
// scanners run.
func (w *fixture) awaitTopic(name string) {
	w.t.Helper()
	check.Until(w.t, "topic "+name+" to be known", rarely(func() bool { return w.status().Topic(name).Shards > 0 }))
}

// stop stops all scanners and checks their exit codes.
func (w *fixture) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := fleet.StopAll(ctx, w.scanners); err != nil {
		w.t.Error(err)
	}
	w.checkLogs()
	w.scanners = nil
}

// stopOne stops one scanner and returns its exit code.
func (w *fixture) stopOne(s *fleet.Scanner) (code int, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return s.Stop(ctx)
}

// checkLogs checks that no scanner had a panic or a data race.
func (w *fixture) checkLogs() {
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

// end stops the scanners that still run after the test.
func (w *fixture) end() {
	for _, s := range w.scanners {
		if s != nil {
			_ = s.Resume()
		}
	}
	w.stop()
}

// consume adds all messages of the queues to the ledger, and keeps them.
func (w *fixture) consume(queues ...string) {
	w.t.Helper()
	for _, queue := range queues {
		end := make(chan struct{})
		w.ends[queue] = end
		c, err := fleet.NewConsumer(fleet.ConsumerConfig{
			URL: w.settings.RabbitMQURL, Queue: queue,
			Handle: func(d fleet.Delivery) { w.arrived(d, end) },
		})
		check.OK(w.t, err)
		var g errgroup.Group
		g.Go(func() error { return c.Run(w.t.Context()) })
		w.t.Cleanup(func() { _ = g.Wait() })
		check.Closed(w.t, "queue "+queue+" to be consumed from", c.Ready())
	}
}

func (w *fixture) arrived(d fleet.Delivery, end chan<- struct{}) {
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
	w.messages.add(d)
}

// delivered returns the messages of a task of topic orders so far.
func (w *fixture) delivered(id string) []fleet.Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []fleet.Delivery
	for d := range w.messages.all() {
		if d.Type == "orders" && d.MessageId == id {
			found = append(found, d)
		}
	}
	return found
}

// stays reports whether the condition remains true for d.
func (w *fixture) stays(d time.Duration, condition func() bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	err := fleet.Await(ctx, func() bool { return !condition() })
	return errors.Is(err, context.DeadlineExceeded)
}

// holds fails the test if the condition becomes false within d.
func (w *fixture) holds(what string, d time.Duration, condition func() bool) {
	w.t.Helper()
	if !w.stays(d, condition) {
		w.t.Fatalf("did not hold for %s: %s", d, what)
	}
}

// finish waits until everything promised has arrived and nothing is stored. Then it stops
// the scanners, empties the queues, and returns the ledger's report.
func (w *fixture) finish() fleet.Report {
	w.t.Helper()
	w.awaitEmpty()
	w.stop()
	w.drain()
	return w.recorder.Ledger.Check()
}

func (w *fixture) awaitEmpty() {
	w.t.Helper()
	w.arrive("all that was promised")
	stored := func() (n int64) {
		for _, t := range w.status().Topics {
			n += t.Pending
		}
		return n
	}
	left := stored()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%d tasks are stored; status %+v", left, w.status())
		}
	}()
	check.Progress(w.t, "nothing to be stored after all arrived", func() int { return int(left) },
		rarely(func() bool { left = stored(); return left == 0 }))
}

// arrive waits until everything promised has arrived.
func (w *fixture) arrive(what string) {
	w.t.Helper()
	check.Progress(w.t, what, w.recorder.Ledger.Count, func() bool { return w.recorder.Ledger.Missing() == 0 })
}

// awaitCount waits until n messages have arrived.
func (w *fixture) awaitCount(n int) {
	w.t.Helper()
	check.Count(w.t, "messages", n, w.recorder.Ledger.Count)
}

// rarely returns a condition that evaluates a costly condition only every seldom.
func rarely(condition func() bool) func() bool {
	var last time.Time
	return func() bool {
		if time.Since(last) < seldom {
			return false
		}
		defer func() { last = time.Now() }()
		return condition()
	}
}

// drain waits until every message now in a queue has arrived. It publishes a marker to
// each queue and waits for it.
func (w *fixture) drain() {
	w.t.Helper()
	ch := w.channel()
	for queue, end := range w.ends {
		check.OK(w.t, ch.PublishWithContext(w.t.Context(), "", queue, false, false, amqp.Publishing{AppId: marker}))
		check.Progress(w.t, "queue "+queue+" to be empty", w.recorder.Ledger.Count, func() bool {
			select {
			case <-end:
				return true
			default:
				return false
			}
		})
	}
}

// channel returns a channel for the test's own use of the broker.
func (w *fixture) channel() *amqp.Channel {
	w.t.Helper()
	return servertest.Channel(w.t, w.settings.RabbitMQURL)
}

// exchange declares an exchange, and unless queue is "" also a queue bound to it.
func (w *fixture) exchange(kind, name, queue, key string) {
	w.t.Helper()
	ch := w.channel()
	check.OK(w.t, ch.ExchangeDeclare(name, kind, true, false, false, false, nil))
	if queue != "" {
		w.queue(ch, name, queue, key)
	}
}

func (w *fixture) queue(ch *amqp.Channel, exchange, queue, key string) {
	w.t.Helper()
	_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
	check.OK(w.t, err)
	check.OK(w.t, ch.QueueBind(queue, key, exchange, false, nil))
}

// status returns the fleet's status, read in this process because tests need it all the
// time.
func (w *fixture) status() fleet.Status {
	w.t.Helper()
	s, err := member.Status(w.t.Context(), w.redis, w.settings.RedisPrefix)
	check.OK(w.t, err)
	return s
}

// scanner runs a scanner command with the operator's configuration.
func (w *fixture) scanner(args ...string) fleet.Output {
	w.t.Helper()
	return run(w.t, fleet.Command{Path: programs.Scanner, Args: append(args, "--config", w.file(operatorRole))})
}

// producer runs a producer command with the producer's configuration.
func (w *fixture) producer(args ...string) fleet.Output {
	w.t.Helper()
	return run(w.t, fleet.Command{Path: programs.Producer, Args: append(args, "--config", w.file(producerRole))})
}

func run(t *testing.T, c fleet.Command) fleet.Output {
	t.Helper()
	out, err := c.Run(check.Context(t))
	check.OK(t, err)
	return out
}

// must fails the test unless the exit code is 0.
func must(t *testing.T, out fleet.Output) fleet.Output {
	t.Helper()
	if out.Code != 0 {
		t.Fatalf("code %d, want 0; stderr: %s", out.Code, out.Stderr)
	}
	return out
}

func (w *fixture) schedule(orders ...fleet.Order) {
	w.t.Helper()
	const batch = 1000
	for len(orders) > 0 {
		n := min(batch, len(orders))
		check.OK(w.t, w.recorder.Schedule(w.t.Context(), orders[:n]...))
		orders = orders[n:]
	}
}

// orders returns n tasks of a topic, due evenly over the given time after start. Each
// payload has size bytes and is unique.
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
