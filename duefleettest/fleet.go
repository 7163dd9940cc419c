package duefleettest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// prefix of the keys. No other program sees them.
const prefix = "duefleet"

// Config configures a Fleet.
type Config struct {
	// Topics that the fleet serves. Required.
	Topics []string
	// Handler handles every task, one at a time, while Advance waits. Required.
	Handler consumer.Handler
	// Policy decides about retries. Defaults to the default of consumer.Config, whose delays
	// are random.
	Policy consumer.Policy
	// Consumer holds the other settings of the application's consumer, for example OnParked,
	// Timeout, MinStep and MaxPayload. The fleet replaces URLs, Queue, Redis, Options, Prefix
	// and MinReplicas. Defaults to none.
	Consumer consumer.Config
	// MaxDeliveries limits the deliveries of one Advance. If more are due, Advance ends the
	// test: a handler that schedules tasks without end would hang it. Defaults to 10,000.
	MaxDeliveries int
	// Start is the time at which the clock stands first, cut to the millisecond. Defaults to
	// the present.
	Start time.Time
	// Synctest says that the test runs in a bubble of testing/synctest. Then the clock is the
	// bubble's, Start means nothing, and Advance sleeps. A handler that takes time moves the
	// clock.
	Synctest bool
}

// Fleet is a fleet in the process of a test, with a clock that the test moves. Its client
// is safe for concurrent use, its other methods aren't.
type Fleet struct {
	t        testing.TB
	cfg      Config
	clock    time.Time
	memory   *memory
	store    *shard.Store
	client   *producer.Client
	consumer *consumer.Consumer
	timeout  time.Duration        // of the consumer's handler
	requests int                  // claims so far
	handled  error                // what the handler returned last
	busy     bool                 // Advance is under way
	last     map[[2]string]latest // delivery, by topic and ID
}

// New starts a fleet that ends with the test. It calls t.Fatalf for a setting that can't
// be used.
func New(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	if cfg.Start.IsZero() {
		cfg.Start = time.Now()
	}
	if cfg.MaxDeliveries == 0 {
		cfg.MaxDeliveries = most
	}
	f := &Fleet{t: t, cfg: cfg, clock: cfg.Start.Truncate(time.Millisecond).UTC(),
		last: map[[2]string]latest{}}
	if err := f.open(); err != nil {
		t.Fatalf("duefleettest: %v", err)
	}
	return f
}

func (f *Fleet) open() (err error) {
	if err := f.cfg.check(); err != nil {
		return err
	}
	if f.memory, err = newMemory(); err != nil {
		return err
	}
	f.t.Cleanup(f.memory.close)
	f.stand()
	if f.store, err = shard.New(f.memory.client, prefix); err != nil {
		return err
	}
	for _, topic := range f.cfg.Topics {
		if _, err := f.store.Topic(topic).Ensure(f.t.Context(), 1); err != nil {
			return err
		}
	}
	settings := producer.Config{Redis: f.memory.client, MaxPayload: f.cfg.Consumer.MaxPayload}
	if f.client, err = producer.New(settings); err != nil {
		return err
	}
	f.consumer, err = consumer.New(f.consumerConfig())
	return err
}

func (cfg Config) check() error {
	if len(cfg.Topics) == 0 {
		return errors.New("Config.Topics must name a topic")
	}
	for _, topic := range cfg.Topics {
		if err := task.CheckTopic(topic); err != nil {
			return err
		}
	}
	if cfg.Handler == nil {
		return errors.New("Config.Handler must be given")
	}
	if cfg.MaxDeliveries < 0 {
		return fmt.Errorf("Config.MaxDeliveries must not be negative; got %d", cfg.MaxDeliveries)
	}
	return nil
}

func (f *Fleet) consumerConfig() consumer.Config {
	cfg := f.cfg.Consumer
	cfg.URLs, cfg.Queue = []string{"amqp://duefleettest"}, "duefleettest" // nothing connects
	cfg.Redis, cfg.Options, cfg.Prefix, cfg.MinReplicas = f.memory.client, nil, prefix, 0
	cfg.Handler = func(ctx context.Context, d task.Delivery) error {
		defer func() {
			if r := recover(); r != nil {
				f.handled = fmt.Errorf("panic: %v", r)
				panic(r) // the consumer logs the stack
			}
		}()
		f.handled = f.cfg.Handler(ctx, d)
		return f.handled
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second // the default of consumer.Config
	}
	f.timeout = cfg.Timeout
	if f.cfg.Policy != nil {
		cfg.Policy = f.cfg.Policy
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(f.t.Output(), nil))
	}
	return cfg
}

// Client returns the producer of the fleet. It stays open until the test ends.
func (f *Fleet) Client() *producer.Client { return f.client }

// Now returns the time on the clock.
func (f *Fleet) Now() time.Time {
	if f.cfg.Synctest {
		return time.Now()
	}
	return f.clock
}

// moveTo moves the clock forward, if it doesn't show that time or a later one.
func (f *Fleet) moveTo(now time.Time) {
	if !now.After(f.Now()) {
		return
	}
	if f.cfg.Synctest {
		time.Sleep(time.Until(now))
		return
	}
	f.clock = now
	f.stand()
}

// stand makes the clock of Redis show f.clock. In a bubble, it is the bubble's anyway.
func (f *Fleet) stand() {
	if !f.cfg.Synctest {
		f.memory.mini.SetTime(f.clock)
	}
}

// Pending returns all stored tasks of a topic: the waiting ones in the order of their next
// attempt, then the parked ones.
func (f *Fleet) Pending(topic string) []producer.Stored {
	f.t.Helper()
	if !slices.Contains(f.cfg.Topics, topic) {
		f.t.Fatalf("duefleettest: topic %s isn't in Config.Topics", topic)
	}
	var all []producer.Stored
	for stored, err := range f.client.List(f.t.Context(), topic, producer.Filter{}) {
		if err != nil {
			f.t.Fatalf("duefleettest: %v", err)
		}
		all = append(all, stored)
	}
	slices.SortFunc(all, func(a, b producer.Stored) int {
		if a.NextAttempt.IsZero() != b.NextAttempt.IsZero() {
			return b.NextAttempt.Compare(a.NextAttempt)
		}
		if order := a.NextAttempt.Compare(b.NextAttempt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Task returns a stored task. ok is false if there is none: it was delivered, cancelled or
// never scheduled.
func (f *Fleet) Task(topic, id string) (stored producer.Stored, ok bool) {
	f.t.Helper()
	stored, err := f.client.Get(f.t.Context(), topic, id)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return producer.Stored{}, false
	case err != nil:
		f.t.Fatalf("duefleettest: %v", err)
	}
	return stored, true
}
