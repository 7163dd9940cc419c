package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// changed returns the error of New for a valid configuration after one change.
func changed(t *testing.T, change func(cfg *Config)) error {
	t.Helper()
	cfg := Config{
		URLs: []string{"amqp://guest:guest@127.0.0.1:1/"}, Queue: queue, Handler: nothing,
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}},
	}
	change(&cfg)
	c, err := New(cfg)
	if err == nil {
		_ = c.close()
	}
	return err
}

// TestMisuseOfConfig: New names the wrong field and says what is valid.
func TestMisuseOfConfig(t *testing.T) {
	t.Parallel()
	check.OK(t, changed(t, func(*Config) {}))
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "duefleet_consumer_rejected_total"}))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	const url = "must be amqp://user:password@host:5672/vhost, with reserved characters percent-encoded"
	misuses := map[string]check.Refusal{}
	for name, row := range map[string]struct {
		change func(cfg *Config)
		want   string
	}{
		"no URL": {
			func(c *Config) { c.URLs = nil },
			"Config.URLs must name a broker, as in amqp://user:password@host:5672/vhost",
		},
		"an empty URL":           {func(c *Config) { c.URLs = append(c.URLs, "") }, "Config.URLs[1] " + url},
		"a URL of the web":       {func(c *Config) { c.URLs = []string{"http://u:secret@h/"} }, "Config.URLs[0] " + url},
		"a password of any kind": {func(c *Config) { c.URLs = []string{"amqp://u:secret%@h/"} }, "Config.URLs[0] " + url},
		"no queue":               {func(c *Config) { c.Queue = "" }, "Config.Queue must name a queue"},
		"a long queue": {
			func(c *Config) { c.Queue = strings.Repeat("q", 256) },
			"Config.Queue must be at most 255 bytes; got 256",
		},
		"a long name": {
			func(c *Config) { c.Name = strings.Repeat("n", 256) },
			"Config.Name must be at most 255 bytes; got 256",
		},
		"no handler":           {func(c *Config) { c.Handler = nil }, "Config.Handler must be given"},
		"JSON of no handler":   {func(c *Config) { c.Handler = JSON[int](nil) }, "Config.Handler must be given"},
		"negative concurrency": {func(c *Config) { c.Concurrency = -1 }, "Config.Concurrency must be at least 1; got -1"},
		"a low prefetch": {
			func(c *Config) { c.Prefetch = 9 },
			"Config.Prefetch must be Config.Concurrency, which is 10, to 65535; got 9",
		},
		"a negative prefetch": {
			func(c *Config) { c.Prefetch = -1 },
			"Config.Prefetch must be Config.Concurrency, which is 10, to 65535; got -1",
		},
		"a high prefetch": {
			func(c *Config) { c.Prefetch = 65536 },
			"Config.Prefetch must be Config.Concurrency, which is 10, to 65535; got 65536",
		},
		"much concurrency": {
			func(c *Config) { c.Concurrency = 40000 },
			"Config.Prefetch must be Config.Concurrency, which is 40000, to 65535; got 80000",
		},
		"a negative timeout": {func(c *Config) { c.Timeout = -time.Second }, "Config.Timeout must be above 0; got -1s"},
		"a negative stop": {
			func(c *Config) { c.StopTimeout = -time.Second },
			"Config.StopTimeout must be above 0; got -1s",
		},
		"a negative limit": {
			func(c *Config) { c.MaxPayload = -1 },
			"Config.MaxPayload must be 1 to 16777216 bytes; got -1",
		},
		"a large limit": {
			func(c *Config) { c.MaxPayload = 16<<20 + 1 },
			"Config.MaxPayload must be 1 to 16777216 bytes; got 16777217",
		},
		"no Redis": {
			func(c *Config) { c.Options = nil },
			"neither Config.Redis nor Config.Options is given; give one of them",
		},
		"two of them": {
			func(c *Config) { c.Redis = rdb },
			"both Config.Redis and Config.Options are given; give one of them",
		},
		"a nil client": {
			func(c *Config) { c.Redis, c.Options = (*redis.Client)(nil), nil },
			"Config.Redis is a nil *redis.Client; give a client, or Config.Options alone",
		},
		"no address": {
			func(c *Config) { c.Options = &redis.UniversalOptions{} },
			"Config.Options.Addrs must name a Redis, as in 127.0.0.1:6379",
		},
		"an address as URL": {
			func(c *Config) { c.Options.Addrs[0] = "redis://:secret@h:1" },
			"Config.Options.Addrs[0] must be host:port, as in 127.0.0.1:6379; it is a URL: user, " +
				"password and TLS are settings of their own",
		},
		"braces": {
			func(c *Config) { c.Prefix = "a}" },
			`prefix "a}" must not have braces, which change a key's slot in a Redis Cluster`,
		},
		"many replicas": {func(c *Config) { c.MinReplicas = 11 }, "MinReplicas must be 0 to 10; got 11"},
	} {
		misuses[name] = check.Refusal{changed(t, row.change), "consumer: " + row.want}
	}
	check.Refusals(t, misuses)
	const inUse = "consumer: register metrics: a previously registered descriptor with the same fully-qualified name"
	err := changed(t, func(c *Config) { c.Registerer = taken })
	if err == nil || !strings.HasPrefix(err.Error(), inUse) {
		t.Errorf("a registerer in use: got %v", err)
	}
}

// TestMisuseOfPolicies: New refuses invalid policies, also within a function of the
// caller. To park after the first attempt, use NoRetry or one attempt.
func TestMisuseOfPolicies(t *testing.T) {
	t.Parallel()
	const few = "most must be at least 1, the first attempt; got 0; NoRetry is for no retries"
	misuses := map[string]check.Refusal{}
	for name, row := range map[string]struct {
		policy Policy
		want   string
	}{
		"a negative delay": {Fixed(-time.Second, 3), "consumer.Fixed(-1s, 3): delay must not be negative; got -1s"},
		"no unit":          {Fixed(30, 3), "consumer.Fixed(30ns, 3): delay must be 0 or at least 1ms; got 30ns"},
		"no linear unit":   {Linear(60, 3), "consumer.Linear(60ns, 3): unit must be 0 or at least 1ms; got 60ns"},
		"no doubled unit": {
			Exponential(1, time.Second, 3),
			"consumer.Exponential(1ns, 1s, 3): first must be 0 or at least 1ms; got 1ns",
		},
		"no unit in a list": {Delays(time.Second, 60), "consumer.Delays: delay 2 must be 0 or at least 1ms; got 60ns"},
		"no attempts":       {Fixed(time.Second, 0), "consumer.Fixed(1s, 0): " + few},
		"a negative unit":   {Linear(-time.Second, 3), "consumer.Linear(-1s, 3): unit must not be negative; got -1s"},
		"no linear ones":    {Linear(time.Second, 0), "consumer.Linear(1s, 0): " + few},
		"a negative first": {
			Exponential(-1, time.Second, 3),
			"consumer.Exponential(-1ns, 1s, 3): first must not be negative; got -1ns",
		},
		"a negative longest": {
			Exponential(0, -1, 0),
			"consumer.Exponential(0s, -1ns, 0): longest must not be negative; got -1ns",
		},
		"swapped": {
			Exponential(time.Minute, time.Second, 3),
			"consumer.Exponential(1m0s, 1s, 3): longest must be at least first",
		},
		"no doubled ones": {Exponential(time.Second, time.Minute, 0), "consumer.Exponential(1s, 1m0s, 0): " + few},
		"no delays":       {Delays(), "consumer.Delays(): give at least one delay, or NoRetry if none is meant"},
		"a negative one":  {Delays(time.Second, -time.Second), "consumer.Delays: delay 2 must not be negative; got -1s"},
		"within a function": {
			func(t task.Task, err error) (time.Duration, bool) { return Fixed(-1, 3)(t, err) },
			"consumer.Fixed(-1ns, 3): delay must not be negative; got -1ns",
		},
		"a panic": {func(task.Task, error) (time.Duration, bool) { panic("no idea") }, "no idea"},
		"a function's delay": {
			func(task.Task, error) (time.Duration, bool) { return 30, true },
			"delay must be 0 or at least 1ms; got 30ns",
		},
	} {
		err := changed(t, func(c *Config) { c.Policy = row.policy })
		misuses[name] = check.Refusal{err, "consumer: Config.Policy: " + row.want}
	}
	check.Refusals(t, misuses)
	for name, policy := range map[string]Policy{
		"NoRetry": NoRetry, "one attempt": Fixed(0, 1), "no first delay": Exponential(0, 0, 2),
		"a function": func(task.Task, error) (time.Duration, bool) { return -1, false },
	} {
		if err := changed(t, func(c *Config) { c.Policy = policy }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAPolicyThatPanicsParks: the consumer continues, and the reason has both errors.
func TestAPolicyThatPanicsParks(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	c := w.consume(Config{
		Policy: func(t task.Task, _ error) (time.Duration, bool) {
			if t.Attempt == 2 {
				panic("no idea")
			}
			return 0, true
		},
		Handler: func(_ context.Context, d task.Delivery) error {
			if d.ID == "a" {
				return errTest
			}
			return nil
		},
	})
	w.schedule("a", "")
	check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
	if got := w.parked()["a"].Reason; got != "Config.Policy: no idea; the attempt failed: the bank is closed" {
		t.Errorf("parked with %q", got)
	}
	w.schedule("b", "")
	check.Until(t, "the next is done", func() bool { return counted(c, done) == 1 })
}

// TestMisuseOfRun: a second Run returns an error.
func TestMisuseOfRun(t *testing.T) {
	t.Parallel()
	c, err := New(Config{
		URLs: []string{"amqp://guest:guest@127.0.0.1:1/"}, Queue: queue, Handler: nothing,
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}},
	})
	check.OK(t, err)
	over, end := context.WithCancel(t.Context())
	end()
	if err := c.Run(over); err != nil {
		t.Fatalf("the first run: %v", err)
	}
	check.Refusals(t, map[string]check.Refusal{
		"again": {c.Run(over), "consumer: Run was called before; a Consumer runs once, make another by New"},
	})
}
