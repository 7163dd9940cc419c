// Command walk executes operations of duefleet on real servers, one after the other. For
// each it writes the coverage into a folder, and prints how deep the stack was where a
// script was sent:
//
//	withservers -- walk FOLDER
//
// It must be built with -cover -covermode=atomic. Package counts runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	prefix = "walk"
	topic  = "orders"
	limit  = time.Minute
	// idleFor is longer than the period of every regular job of an idle scanner that a
	// task may meet.
	idleFor = 3 * time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// run makes all walks or, as a child of itself, schedules tasks.
func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "schedule" {
		return scheduleTasks(ctx, args[1], args[2])
	}
	if len(args) != 1 {
		return errors.New("usage: walk FOLDER")
	}
	r := &recorder{dir: args[0], depths: map[string]measured{}}
	settings, err := readSettings()
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: settings.RedisAddr})
	defer rdb.Close()
	w := &walker{recorder: r, rdb: rdb, settings: settings, config: filepath.Join(args[0], "config.yaml")}
	if err := w.scannerWalks(ctx); err != nil {
		return err
	}
	if err := w.producerWalks(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r.depths)
}

// readSettings returns the settings for the servers that withservers names.
func readSettings() (s fleet.Settings, err error) {
	node, err := url.Parse(os.Getenv("DUEFLEET_TEST_RABBITMQ"))
	if err != nil {
		return s, err
	}
	s = fleet.Settings{
		RedisAddr: os.Getenv("DUEFLEET_TEST_REDIS"), RedisPrefix: prefix,
		RabbitMQURL: "amqp://" + node.User.String() + "@" + node.Hostname() + ":" + node.Query().Get("amqp") + "/",
		Topics:      map[string]fleet.Topic{topic: fleet.DeclaredTopic(topic, fleet.Topic{"shards": 2})},
	}
	if s.RedisAddr == "" || node.Host == "" {
		return s, errors.New("there are no servers: run it with withservers")
	}
	return s, nil
}

// walker makes the walks.
type walker struct {
	recorder *recorder
	rdb      *redis.Client // without a hook
	settings fleet.Settings
	config   string
}

// scannerWalks starts a scanner and records it idle, with a due task, and with a change of M.
func (w *walker) scannerWalks(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := fleet.WriteConfig(w.config, w.settings.Document()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- runScanner(ctx, w.config, w.recorder) }()
	// The first task shows that the topic is served.
	if err := await(ctx, ended, func() (bool, error) { return w.child("1", "0s") == nil, nil }); err != nil {
		return fmt.Errorf("first task: %w", err)
	}
	if err := await(ctx, ended, w.delivered); err != nil {
		return fmt.Errorf("first task: %w", err)
	}
	if err := w.recorder.record("idle", func() error { time.Sleep(idleFor); return nil }); err != nil {
		return err
	}
	if err := w.recorder.record("due task", func() error {
		if err := w.child("1", "1s"); err != nil {
			return err
		}
		return await(ctx, ended, w.delivered)
	}); err != nil {
		return err
	}
	if err := w.child("100", "1h"); err != nil {
		return err
	}
	w.settings.Topics[topic]["shards"] = 4
	err := w.recorder.record("change of M", func() error {
		if err := fleet.WriteConfig(w.config, w.settings.Document()); err != nil {
			return err
		}
		return await(ctx, ended, w.moved)
	})
	if err != nil {
		return err
	}
	stop()
	return <-ended
}

// producerWalks records the first call of a producer, and a later one. Nothing else runs.
func (w *walker) producerWalks(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: w.settings.RedisAddr})
	defer rdb.Close()
	rdb.AddHook(w.recorder)
	client, err := producer.New(producer.Config{Redis: rdb, Prefix: prefix})
	if err != nil {
		return err
	}
	for _, name := range []string{"first schedule", "schedule"} {
		if err := w.recorder.record(name, func() error { return schedule(ctx, client, name, time.Hour) }); err != nil {
			return err
		}
	}
	return nil
}

// schedule schedules one task. The recorder looks for its name on the stacks.
func schedule(ctx context.Context, client *producer.Client, id string, in time.Duration) error {
	_, err := client.Schedule(ctx, producer.Request{Topic: topic, ID: id, When: producer.In(in), Payload: []byte("{}")})
	return err
}

// child schedules tasks in another process, so that this one executes no part of a producer.
func (w *walker) child(n, in string) error {
	cmd := exec.Command(os.Args[0], "schedule", n, in) //nolint:gosec,noctx // this program, which ends by itself
	dir := filepath.Join(w.recorder.dir, "child")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("schedule %s tasks: %w: %s", n, err, out)
	}
	return nil
}

func scheduleTasks(ctx context.Context, count, in string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	delay, err := time.ParseDuration(in)
	if err != nil {
		return err
	}
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: []string{os.Getenv("DUEFLEET_TEST_REDIS")}}, Prefix: prefix,
	})
	if err != nil {
		return err
	}
	for i := range n {
		if err := schedule(ctx, client, fmt.Sprintf("o-%d", i), delay); err != nil {
			return err
		}
	}
	return client.Close()
}

// delivered reports whether no task is stored.
func (w *walker) delivered() (bool, error) {
	for shard := range 4 {
		n, err := w.rdb.ZCard(context.Background(), fmt.Sprintf("%s:due:{%s:%d}", prefix, topic, shard)).Result()
		if err != nil || n > 0 {
			return false, err
		}
	}
	return true, nil
}

// moved reports whether the placement is stable with four shards.
func (w *walker) moved() (bool, error) {
	value, err := w.rdb.HGet(context.Background(), fmt.Sprintf("%s:placement:{%s}", prefix, topic), "value").Result()
	fields := strings.Fields(value)
	return len(fields) == 4 && fields[1] == "4" && fields[3] == "stable", err
}

// await polls a condition until it holds, the scanner ends, or it takes too long.
func await(ctx context.Context, ended <-chan error, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the scanner ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// clearCoverage makes all code count as not executed.
func clearCoverage() error { return coverage.ClearCounters() }

// writeCoverage writes what was executed since then into a new folder.
func writeCoverage(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir))
}
