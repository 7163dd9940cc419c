package duefleettest_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// scenario says how an application acts, and what it must see. It has no clock: short
// delays end while deliver waits, and hours don't.
type scenario struct {
	name   string
	cfg    consumer.Config // Policy and limits
	handle func(s *story, d task.Delivery) error
	run    func(s *story)
	want   []string
}

// story is one run of a scenario, on either fleet.
type story struct {
	t       *testing.T
	topic   string
	client  *producer.Client
	deliver func(n int) // waits until n more deliveries are over

	mu    sync.Mutex
	lines []string // what was seen
}

const (
	soon = 20 * time.Millisecond
	// last is the ID of a task that follows all others. It is due after everything soon.
	last = "last"
)

// TestContract: applications see the same in the fleet of this package as in a real one,
// with Redis, RabbitMQ, a scanner and a consumer. That holds for the order of deliveries,
// attempts, payloads, errors, and what is stored at the end.
func TestContract(t *testing.T) {
	t.Parallel()
	live := startReal(t)
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for where, play := range map[string]func(*testing.T, scenario) []string{"kit": onKit, "real": live.play} {
				if got := play(t, sc); !reflect.DeepEqual(got, sc.want) {
					t.Errorf("%s: got\n%s\nwant\n%s", where, strings.Join(got, "\n"), strings.Join(sc.want, "\n"))
				}
			}
		})
	}
}

// onKit plays a scenario on a fleet of this package.
func onKit(t *testing.T, sc scenario) []string {
	s := &story{t: t, topic: sc.topic()}
	registry := prometheus.NewRegistry()
	sc.cfg.Registerer = registry
	kit := duefleettest.New(t, duefleettest.Config{Topics: []string{s.topic}, Handler: s.handler(sc), Consumer: sc.cfg})
	s.client = kit.Client()
	s.deliver = func(n int) {
		t.Helper()
		if got := len(kit.Advance(time.Minute)); got != n {
			t.Errorf("kit: got %d deliveries, want %d", got, n)
		}
	}
	return s.play(sc, registry)
}

// realFleet is a scanner with a topic for each scenario.
type realFleet struct {
	*fixture.Redis
	rabbitmq string
}

func startReal(t *testing.T) realFleet {
	t.Helper()
	r := realFleet{fixture.New(t), servertest.RabbitMQ(t)}
	settings := fleet.Settings{RedisAddr: r.Addr, RedisPrefix: r.Prefix, RabbitMQURL: r.rabbitmq,
		Topics: map[string]fleet.Topic{}}
	for _, sc := range scenarios() {
		settings.Topics[sc.topic()] = fleet.DeclaredTopic(sc.topic(), fleet.Topic{"shards": 1})
	}
	path := t.TempDir() + "/config.yaml"
	check.OK(t, fleet.WriteConfig(path, settings.Document()))
	check.Background(t, "the scanner", func(ctx context.Context) error { return member.Run(ctx, path) })
	return r
}

// play plays a scenario on the real fleet. One delivery at a time is in a handler, as in the
// kit.
func (r realFleet) play(t *testing.T, sc scenario) []string {
	s := &story{t: t, topic: sc.topic()}
	registry := prometheus.NewRegistry()
	cfg := sc.cfg
	cfg.URLs, cfg.Queue, cfg.Redis, cfg.Prefix = []string{r.rabbitmq}, s.topic+".due", r.Client, r.Prefix
	cfg.Handler, cfg.Concurrency, cfg.Prefetch, cfg.Registerer = s.handler(sc), 1, 1, registry
	cfg.Log = slog.New(slog.DiscardHandler)
	c, err := consumer.New(cfg)
	check.OK(t, err)
	s.client, err = producer.New(producer.Config{Redis: r.Client, Prefix: r.Prefix})
	check.OK(t, err)
	check.Until(t, "the topic "+s.topic, func() bool {
		_, err := r.Store.Topic(s.topic).Placement(t.Context())
		return err == nil
	})
	check.Background(t, "the consumer", c.Run)
	before := 0
	s.deliver = func(n int) {
		t.Helper()
		before += n
		check.Count(t, "deliveries", before, func() int { return total(outcomes(t, registry)) })
		check.Until(t, "the scanner to settle them", func() bool {
			leased := 0
			for _, err := range s.client.List(t.Context(), s.topic, producer.Filter{State: task.Leased}) {
				check.OK(t, err)
				leased++
			}
			return leased == 0
		})
	}
	return s.play(sc, registry)
}

func (sc scenario) topic() string { return strings.ReplaceAll(sc.name, " ", "-") }

// play runs the scenario. Then it schedules one more task: whatever is due before is
// delivered before. It returns what was seen, with the outcomes and what is stored.
func (s *story) play(sc scenario, registry *prometheus.Registry) []string {
	s.t.Helper()
	sc.run(s)
	s.schedule(producer.Request{ID: last, When: task.In(10 * soon)})
	s.deliver(1)
	s.note("%v", outcomes(s.t, registry))
	var stored []string
	for r, err := range s.client.List(s.t.Context(), s.topic, producer.Filter{}) {
		check.OK(s.t, err)
		stored = append(stored, fmt.Sprintf("%s %s %q #%d %s", r.State, r.ID, r.Payload, r.Attempt, r.Reason))
	}
	slices.Sort(stored)
	return append(s.lines, stored...)
}

// handler notes each delivery before it calls the scenario's handler.
func (s *story) handler(sc scenario) consumer.Handler {
	return func(_ context.Context, d task.Delivery) error {
		if d.ID == last {
			return nil
		}
		line := fmt.Sprintf("%s %q #%d", d.ID, d.Payload, d.Attempt)
		if d.Due.After(d.FirstDue) {
			line += " again"
		}
		if d.LastAttempt(nil) {
			line += " the last attempt"
		}
		s.note("%s", line)
		if sc.handle == nil {
			return nil
		}
		return sc.handle(s, d)
	}
}

func (s *story) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// schedule schedules a task, and notes an error.
func (s *story) schedule(r producer.Request) {
	r.Topic = s.topic
	if _, err := s.client.Schedule(s.t.Context(), r); err != nil {
		s.note("schedule: %v", err)
	}
}

// cancel cancels the task a, and notes the result.
func (s *story) cancel() {
	s.note("cancel: %v", s.client.Cancel(s.t.Context(), s.topic, "a"))
}

// reschedule moves the task a, and notes an error.
func (s *story) reschedule(when task.When) {
	if _, err := s.client.Reschedule(s.t.Context(), s.topic, "a", when); err != nil {
		s.note("reschedule: %v", err)
	}
}

// outcomes returns the number of deliveries by outcome.
func outcomes(t *testing.T, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	check.OK(t, err)
	got := map[string]int{}
	for _, family := range families {
		if family.GetName() != "duefleet_consumer_deliveries_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "outcome" {
					got[label.GetValue()] = int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return got
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
