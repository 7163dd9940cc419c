package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestRecurringTasksWhileEverythingDies: scanners are killed, so that some die between a
// confirm and its settlement, while M changes, and Redis is killed and starts again. The
// messages are a ledger of the runs: no run is missing, none comes before its time, and one
// that comes again is marked.
func TestRecurringTasksWhileEverythingDies(t *testing.T) {
	t.Parallel()
	const series = 60
	users := filepath.Join(t.TempDir(), "users.acl")
	check.OK(t, os.WriteFile(users, []byte("user default on nopass ~* &* +@all\n"), 0o600))
	server := servertest.OwnRedis(t, "--appendfsync", "always", "--aclfile", users)
	w := newFixtureOn(t, fleet.Settings{RedisAddr: server.Addr(), RedisPrefix: "p", RabbitMQURL: servertest.RabbitMQ(t),
		Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"lease": "2s", "shards": 4})}},
		&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	check.OK(t, w.redis.Do(t.Context(), "ACL", "SAVE").Err())
	s := &source{fixture: w, set: func(topic string, changes fleet.Topic) {
		w.settings.Topics[topic] = w.settings.Topics[topic].With(changes)
		w.write()
	}}
	runs := &runLedger{t: t, seen: map[string]map[int64]int{}, came: make(chan struct{}, 1)}
	w.tap = runs.add
	w.start(3)
	w.consume("orders.due")
	for i := range series {
		_, err := w.recorder.Client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: fmt.Sprint("s-", i),
			When: producer.Now(), Recurrence: &task.Recurrence{Every: time.Second, Each: true}})
		check.OK(t, err)
	}
	awaits := func(what string, n int) {
		t.Helper()
		from := runs.least()
		check.Until(t, fmt.Sprintf("%d runs %s", n, what), func() bool { return runs.least() >= from+n })
	}
	awaits("of each series", 2)
	s.set("orders", fleet.Topic{"shards": 7})
	s.migrating(7)
	kill := func(victim int) {
		t.Helper()
		runs.midway()
		s.killAndStart(victim)
	}
	kill(0)
	awaits("after a kill in a change of M", 2)
	runs.midway()
	check.OK(t, server.Kill())
	check.OK(t, server.Restart(check.Context(t)))
	awaits("after Redis came back", 2)
	kill(1)
	// Tasks that recur each second are always due soon, so they move in a late pass.
	check.Progress(t, "7 shards, stable", runs.least, rarely(func() bool { return s.placement().Phase == shard.Stable }))
	kill(2)
	awaits("after another kill", 3)
	ids := make([]string, series)
	for i := range ids {
		ids[i] = fmt.Sprint("s-", i)
	}
	for _, err := range w.recorder.Client.CancelMany(t.Context(), "orders", ids) {
		check.OK(t, err)
	}
	check.Until(t, "nothing to be stored", rarely(func() bool { return w.status().Topic("orders").Pending == 0 }))
	w.stop()
	w.drain()
	runs.check()
}

// runLedger counts the messages of each run of recurring tasks that run each second.
type runLedger struct {
	t    *testing.T
	came chan struct{} // a message has come
	mu   sync.Mutex
	seen map[string]map[int64]int // by series and planned ms
}

// midway returns when a message has come. Others of its batch are on their way, or confirmed
// and not settled.
func (l *runLedger) midway() {
	l.t.Helper()
	select {
	case <-l.came:
	default:
	}
	check.Receive(l.t, "a run", l.came)
}

func (l *runLedger) add(d fleet.Delivery) {
	select {
	case l.came <- struct{}{}:
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	series, _ := d.Headers[task.HeaderSeries].(string)
	due, _ := d.Headers[task.HeaderDue].(int64)
	if series == "" || d.MessageId != task.RunID(series, time.UnixMilli(due)) {
		l.t.Errorf("a message with ID %q is no run of %q, due at %d", d.MessageId, series, due)
		return
	}
	if l.seen[series] == nil {
		l.seen[series] = map[int64]int{}
	}
	l.seen[series][due]++
	if d.At.UnixMilli() < due {
		l.t.Errorf("run %s came %d ms early", d.MessageId, due-d.At.UnixMilli())
	}
	if l.seen[series][due] > 1 && d.Headers[task.HeaderRedelivered] != true && !d.Redelivered {
		l.t.Errorf("run %s came again without a mark", d.MessageId)
	}
}

// least returns how many runs the series with the fewest has had.
func (l *runLedger) least() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := -1
	for _, runs := range l.seen {
		if least < 0 || len(runs) < least {
			least = len(runs)
		}
	}
	return least
}

// check fails the test for a gap in a series.
func (l *runLedger) check() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	total, again := 0, 0
	for series, runs := range l.seen {
		first, last := int64(0), int64(0)
		for due, times := range runs {
			if first == 0 || due < first {
				first = due
			}
			last = max(last, due)
			again += times - 1
		}
		total += len(runs)
		for due := first; due <= last; due += 1000 {
			if runs[due] == 0 {
				l.t.Errorf("series %s has no run at %d, between %d and %d", series, due, first, last)
			}
		}
		if n := int((last-first)/1000) + 1; n != len(runs) {
			l.t.Errorf("series %s has %d runs, want %d", series, len(runs), n)
		}
	}
	l.t.Logf("%d runs of %d series, %d repeats, all marked", total, len(l.seen), again)
}
