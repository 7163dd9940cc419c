package consumer

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func nothing(context.Context, task.Delivery) error { return nil }

// run runs a consumer until it returns.
func (w *fixture) run(cfg Config) error {
	w.t.Helper()
	cfg.Handler = nothing
	c, err := New(w.configure(cfg))
	check.OK(w.t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(w.t.Context()) }()
	return check.Receive(w.t, "the end of Run", ended)
}

func says(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v doesn't say %q", err, word)
		}
	}
}

// TestRunEndsWithAnErrorThatWaitingDoesNotMend: the error says what to fix, without the
// password.
func TestRunEndsWithAnErrorThatWaitingDoesNotMend(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	changed := func(change func(u *url.URL)) []string {
		u, err := url.Parse(w.settings.RabbitMQURL)
		check.OK(w.t, err)
		change(u)
		return []string{u.String()}
	}
	for name, row := range map[string]struct {
		cfg  Config
		want []string
	}{
		"a wrong password": {
			Config{URLs: changed(func(u *url.URL) { u.User = url.UserPassword("guest", "sesame") })},
			[]string{"refuses the consumer", "Login was refused", "Config.URLs"},
		},
		"a vhost that isn't there": {
			Config{URLs: changed(func(u *url.URL) { u.Path = "/nowhere" })},
			[]string{"refuses the consumer", "nowhere", "Config.URLs"},
		},
		"a wrong password behind a URL that leads nowhere": {
			Config{URLs: append([]string{"amqp://127.0.0.1:1/"},
				changed(func(u *url.URL) { u.User = url.UserPassword("guest", "sesame") })...)},
			[]string{"refuses the consumer", "Login was refused"},
		},
		"a queue that nobody makes": {
			Config{Queue: "no.such.queue", QueueTimeout: time.Millisecond},
			[]string{"no queue no.such.queue", "NOT_FOUND", "declare.queue", "Config.Queue"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := (&fixture{t: t, settings: w.settings, rdb: w.rdb}).run(row.cfg)
			says(t, err, row.want...)
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// TestAConsumerMayStartBeforeItsQueue, which a scanner creates.
func TestAConsumerMayStartBeforeItsQueue(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var out check.Log
	c := w.consume(Config{Queue: "later", Handler: nothing, Log: slog.New(slog.NewTextHandler(&out, nil))})
	check.Until(t, "the log says that there is no queue",
		func() bool { return strings.Contains(out.String(), "no queue 'later'") })
	_, err := w.channel.QueueDeclare("later", true, false, false, false, nil)
	check.OK(w.t, err)
	check.Until(t, "the queue is consumed", func() bool {
		q, err := w.channel.QueueDeclarePassive("later", true, false, false, false, nil)
		check.OK(w.t, err)
		return q.Consumers == 1
	})
	c.stop()
}

func TestASecondRunSaysSo(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.consume(Config{Handler: nothing})
	c.stop()
	says(t, c.Run(t.Context()), "Run was called before")
}

func TestTheLogIsTheDefaultOne(t *testing.T) {
	t.Parallel()
	if cfg := (Config{}).withDefaults(); cfg.Log != slog.Default() {
		t.Error("Config.Log defaults to another log than slog's")
	}
}

// TestAConsumerThatLooksElsewhereSaysSo: its prefix, database or Redis isn't the
// scanners'. No handler runs, the log says where the consumer looks, and Run ends quickly
// when it is stopped.
func TestAConsumerThatLooksElsewhereSaysSo(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(cfg *Config, addr string)
		want   []string
	}{
		"prefix": {func(cfg *Config, _ string) { cfg.Prefix = "elsewhere" },
			[]string{"prefix=elsewhere", "no scanner serves"}},
		"database": {func(cfg *Config, addr string) { cfg.Options = &redis.UniversalOptions{Addrs: []string{addr}, DB: 1} },
			[]string{"db=1", "no scanner serves"}},
		"redis": {func(cfg *Config, _ string) { cfg.Options = &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}} },
			[]string{"redis=127.0.0.1:1", "redis can't be used"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.makeOrders()
			if _, cluster := w.rdb.(*redis.ClusterClient); cluster && name == "database" {
				t.Skip("a cluster has one")
			}
			var out check.Log
			var seen log
			cfg := Config{Concurrency: 2, Log: slog.New(slog.NewTextHandler(&out, nil)),
				Handler: func(_ context.Context, d task.Delivery) error {
					seen.add(d)
					return errTest
				}}
			row.change(&cfg, w.settings.RedisAddr)
			c := w.consume(cfg)
			w.deliver(orders, 3)
			for _, words := range append(row.want, "level=ERROR", "queue="+queue) {
				check.Until(t, "the log says "+words, func() bool { return strings.Contains(out.String(), words) })
			}
			c.stop()
			if strings.Contains(out.String(), "cut short") {
				t.Errorf("the stop took StopTimeout: %s", out.String())
			}
			if n := len(seen.all()); n > 0 {
				t.Errorf("handled %d times", n)
			}
			check.Until(t, "the messages are in the queue", func() bool { return w.waiting(queue) == 3 })
		})
	}
}
