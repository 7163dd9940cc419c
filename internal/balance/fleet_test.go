package balance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/wait"
)

// fleet is the fleet of one test.
type fleet struct {
	t      *testing.T
	store  *shard.Store
	rdb    redis.UniversalClient
	prefix string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	r := fixture.New(t)
	return &fleet{t: t, store: r.Store, rdb: r.Client, prefix: r.Prefix}
}

func (f *fleet) ok(err error) {
	f.t.Helper()
	check.OK(f.t, err)
}

// silent sets an instance's last heartbeat to some time ago.
func (f *fleet) silent(instance string, ago time.Duration) {
	f.t.Helper()
	now, err := f.rdb.Time(f.t.Context()).Result()
	f.ok(err)
	score := float64(now.Add(-ago).UnixMilli())
	f.ok(f.rdb.ZAdd(f.t.Context(), f.prefix+":fleet", redis.Z{Score: score, Member: instance}).Err())
}

// members returns the members as text: name, alive, host and troubles.
func (f *fleet) members() string {
	f.t.Helper()
	members, err := Members(f.t.Context(), f.store)
	f.ok(err)
	var out []string
	for _, m := range members {
		out = append(out, fmt.Sprint(m.Instance, " ", m.Alive, " ", m.Host, m.Troubles["orders"]))
	}
	return strings.Join(out, ", ")
}

// beating runs a member's heartbeats until stop is called or the test ends.
func (f *fleet) beating(instance string, cfg HeartbeatConfig) (h *Heartbeat, stop func()) {
	f.t.Helper()
	cfg.Store, cfg.Instance = f.store, instance
	cfg.Describe = func() Member { return Member{Instance: instance, Host: "host of " + instance} }
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.After == nil {
		cfg.After = func() {}
	}
	if cfg.Advice == nil {
		cfg.Advice = func(string) string { return "" }
	}
	h = NewHeartbeat(cfg)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	f.t.Cleanup(stop)
	return h, stop
}

func TestTheFleetHasNoMemberThatLeft(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for instance, note := range map[string]string{
		"killed": `{"instance": "killed", "host": "h", "troubles": {"orders": ": no exchange"}}`,
		"newer":  "what this version can't read",
	} {
		_, err := f.store.Describe(t.Context(), instance, []byte(note))
		f.ok(err)
	}
	f.silent("killed", time.Minute)
	f.silent("newer", 30*time.Second)
	f.silent("left", time.Minute) // its note is gone: this heartbeat came after the leave
	f.silent("new", -time.Hour)   // it hasn't described itself so far
	if got, want := f.members(), "killed false h: no exchange, newer false , new true "; got != want {
		t.Errorf("members: %s, want %s", got, want)
	}
}

func TestAHeartbeatKeepsAMemberInTheFleetUntilItEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.silent("dead", time.Hour)
	var beats atomic.Int64
	one, stop := f.beating("one", HeartbeatConfig{After: func() { beats.Add(1) }})
	wait.For(t, "two heartbeats", func() bool { return beats.Load() >= 2 })
	if state := one.State(); state.Live != 1 || state.Answered.IsZero() || state.Failure != "" {
		t.Errorf("alone in the fleet: %+v", state)
	}
	two, _ := f.beating("two", HeartbeatConfig{})
	wait.For(t, "both to know of each other", func() bool { return one.State().Live == 2 && two.State().Live == 2 })
	stop()
	wait.For(t, "the other to know that it left", func() bool { return two.State().Live == 1 })
	if got := f.members(); strings.Contains(got, "one ") || !strings.Contains(got, "two true host of two") {
		t.Errorf("members: %s", got)
	}
}

// lines counts two messages in a log.
type lines struct{ down, up atomic.Int64 }

func (l *lines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "redis does not serve this scanner") {
		l.down.Add(1)
	}
	if strings.Contains(string(line), "redis serves this scanner again") {
		l.up.Add(1)
	}
	return len(line), nil
}

// TestAnOutageIsLoggedOnceAndOnceMoreWithAdvice: the advice for an operator may be known
// only after the outage has lasted for a while.
func TestAnOutageIsLoggedOnceAndOnceMoreWithAdvice(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var deaf atomic.Bool
	faults.Around(f.rdb, func(ctx context.Context, r faults.Request) error {
		if deaf.Load() {
			return r.Fail(errors.New("nobody answers"))
		}
		return r.Send(ctx)
	})
	var beats atomic.Int64
	var advice atomic.Value
	advice.Store("")
	log := &lines{}
	h, _ := f.beating("one", HeartbeatConfig{
		After:  func() { beats.Add(1) },
		Advice: func(string) string { return advice.Load().(string) },
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	})
	further := func(what string) {
		n := beats.Load() + 2
		wait.For(t, what, func() bool { return beats.Load() >= n })
	}
	further("heartbeats")
	deaf.Store(true)
	further("heartbeats that fail")
	down := h.State()
	if !strings.Contains(down.Failure, "nobody answers") || log.down.Load() != 1 {
		t.Errorf("%d lines, %+v", log.down.Load(), down)
	}
	advice.Store("; start it")
	further("heartbeats with advice")
	if s := h.State(); !strings.Contains(s.Failure, "; start it") || !s.Answered.Equal(down.Answered) || s.Live != 1 ||
		log.down.Load() != 2 {
		t.Errorf("%d lines, %+v after %+v", log.down.Load(), s, down)
	}
	deaf.Store(false)
	further("heartbeats that are answered")
	if s := h.State(); s.Failure != "" || !s.Answered.After(down.Answered) || log.up.Load() != 1 || log.down.Load() != 2 {
		t.Errorf("%d and %d lines, %+v after %+v", log.down.Load(), log.up.Load(), s, down)
	}
}

func TestADrawIsOfConsecutiveShardsUnderThePlacement(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	orders := f.store.Topic("orders")
	if _, _, err := Draw(t.Context(), orders, 1); !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("a draw before the topic is made: %v", err)
	}
	made, err := orders.Ensure(t.Context(), 5)
	f.ok(err)
	next, p, err := Draw(t.Context(), orders, 3)
	f.ok(err)
	if len(next) != 3 || p != made {
		t.Fatalf("drew %v under %s, want 3 shards under %s", next, p, made)
	}
	for range 4 {
		drawn, _, err := Draw(t.Context(), orders, 2)
		f.ok(err)
		if len(drawn) != 2 || drawn[0] != (next[len(next)-1]+1)%5 || drawn[1] != (drawn[0]+1)%5 {
			t.Fatalf("drew %v after %v", drawn, next)
		}
		next = drawn
	}
}
