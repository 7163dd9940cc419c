package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	shared "github.com/duefleet/duefleet/test/fixture"
)

// victimEnv is the environment variable that makes a process of this test binary a
// victim: a consumer that is killed.
const victimEnv = "DUEFLEET_TEST_VICTIM"

// order tells a victim where to consume, and when to exit.
type order struct {
	URL, Redis, Prefix string
	Fails              bool
	Step               step
}

// handler records each call in Redis, where it survives the process. It may fail the
// first attempt of task a. z marks the end and isn't retried.
func (o order) handler(rdb redis.UniversalClient) Handler {
	return func(ctx context.Context, d task.Delivery) error {
		if err := rdb.RPush(ctx, o.Prefix+":handled", fmt.Sprintf("%s/%d", d.ID, d.Attempt)).Err(); err != nil {
			return err
		}
		if o.Fails && d.ID == "a" && d.Attempt == 1 {
			return errTest
		}
		return nil
	}
}

func (o order) config(rdb redis.UniversalClient) Config {
	return Config{
		URLs: []string{o.URL}, Queue: queue, Redis: rdb, Prefix: o.Prefix,
		Policy: Fixed(10*time.Millisecond, 5), Handler: o.handler(rdb),
	}
}

// victim consumes until it has done the step in its order, and exits there. It also exits
// when its standard input ends, because then its parent has exited.
func victim() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return
	}
	rdb := redis.NewUniversalClient(shared.Options(o.Redis))
	cfg := o.config(rdb)
	cfg.Timeout = never
	cfg.step = func(s step) {
		if s == o.Step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	c, err := New(cfg)
	if err != nil {
		return
	}
	_ = c.Run(context.Background())
}

func TestAKilledConsumerRepeatsAtMostOnceAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fails bool
		at    step
		first int // number of calls for the first attempt
	}{
		{false, stepHandled, 2},
		{false, stepRemembered, 1},
		{false, stepAcked, 1},
		{true, stepHandled, 2},
		{true, stepAllowed, 2},
		{true, stepStored, 2},
		{true, stepRemembered, 1},
		{true, stepAcked, 1},
	} {
		t.Run(fmt.Sprintf("fails %v, killed when %s", row.fails, row.at), func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			o := order{w.settings.RabbitMQURL, w.settings.RedisAddr, w.settings.RedisPrefix, row.fails, row.at}
			w.lease("a")()
			w.die(o)
			c := w.consume(o.config(w.rdb))
			if row.first > 1 {
				check.Until(t, "the repeat is over", func() bool {
					return counted(c, done)+counted(c, retried)+counted(c, superseded) == 1
				})
			}
			// The second attempt is delivered once the first needs no repeat.
			w.reshard(1)
			w.scan()
			want := map[string]int{"a/1": row.first}
			if row.fails {
				want["a/2"] = 1
			}
			check.Until(t, "all is handled", func() bool {
				return w.handled()["a/2"] >= want["a/2"] &&
					w.handled()["a/1"] >= row.first
			})
			w.forgotten()
			w.schedule("z", "") // repeats come before it
			check.Until(t, "the task that is due later is handled", func() bool { return w.handled()["z/1"] == 1 })
			c.stop()
			got := w.handled()
			if got["a/1"] != want["a/1"] || got["a/2"] != want["a/2"] {
				t.Errorf("handled %v, want %v", got, want)
			}
			if _, there := w.stored("a"); there {
				t.Error("the task is left in Redis")
			}
			if left := w.take(queue); len(left) > 0 {
				t.Errorf("left in the queue: %q", left)
			}
		})
	}
}

// die runs a victim until it exits and the broker has requeued its deliveries.
func (w *fixture) die(o order) {
	w.t.Helper()
	env, err := json.Marshal(o)
	check.OK(w.t, err)
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(env))
	in, err := cmd.StdinPipe()
	check.OK(w.t, err)
	check.OK(w.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = in.Close() }()
	err = check.Receive(w.t, "the victim dies", ended)
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		w.t.Fatalf("the victim ended by itself: %v", err)
	}
	check.Until(w.t, "the broker notices", func() bool {
		q, err := w.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		check.OK(w.t, err)
		return q.Consumers == 0
	})
}

// handled returns the calls of the handlers of all consumers, by ID and attempt.
func (w *fixture) handled() map[string]int {
	w.t.Helper()
	all, err := w.rdb.LRange(w.t.Context(), w.settings.RedisPrefix+":handled", 0, -1).Result()
	check.OK(w.t, err)
	n := map[string]int{}
	for _, call := range all {
		n[call]++
	}
	return n
}
