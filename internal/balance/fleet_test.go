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
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
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

// silent sets an instance's last heartbeat to some time ago.
func (f *fleet) silent(instance string, ago time.Duration) {
	f.t.Helper()
	score := float64(servertest.RedisNow(f.t, f.rdb).Add(-ago).UnixMilli())
	check.OK(f.t, f.rdb.ZAdd(f.t.Context(), f.prefix+":fleet", redis.Z{Score: score, Member: instance}).Err())
}

// members returns the members as text: name, alive, host and troubles.
func (f *fleet) members() string {
	f.t.Helper()
	members, err := Members(f.t.Context(), f.store)
	check.OK(f.t, err)
	var out []string
	for _, m := range members {
		out = append(out, fmt.Sprint(m.Instance, " ", m.Alive, " ", m.Host, m.Trouble("orders")))
	}
	return strings.Join(out, ", ")
}

// beating runs a member's heartbeats until stop is called or the test ends.
func (f *fleet) beating(instance string, cfg HeartbeatConfig) (h *Heartbeat, stop func()) {
	f.t.Helper()
	cfg.Store, cfg.Instance = f.store, instance
	if cfg.Describe == nil {
		cfg.Describe = func() Member { return Member{Instance: instance, Host: "host of " + instance} }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
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
		"killed": `{"instance": "killed", "host": "h", "problems": [{"topic": "orders", "text": ": no exchange"}]}`,
		"newer":  "what this version can't read",
	} {
		_, err := f.store.Registry().Describe(t.Context(), instance, []byte(note))
		check.OK(f.t, err)
	}
	f.silent("killed", time.Minute)
	f.silent("newer", 30*time.Second)
	f.silent("left", time.Minute) // its note is gone: this heartbeat came after the leave
	f.silent("new", -time.Hour)   // it hasn't described itself so far
	if got, want := f.members(), "killed false h: no exchange, new true , newer false "; got != want {
		t.Errorf("members: %s, want %s", got, want)
	}
}

// A member without a note would count as one whose version doesn't report its source.
func TestAMemberLivesOnceItHasDescribedItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := make(chan string, 1)
	f.beating("one", HeartbeatConfig{Describe: func() Member {
		select {
		case first <- f.members():
		default: // later notes
		}
		return Member{Instance: "one", Host: "host"}
	}})
	if got := check.Receive(t, "the first note", first); got != "" {
		t.Errorf("members before the first note: %s", got)
	}
	check.Until(t, "the member to live", func() bool { return f.members() == "one true host" })
}

func TestAHeartbeatKeepsAMemberInTheFleetUntilItEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.silent("dead", time.Hour)
	var beats atomic.Int64
	one, stop := f.beating("one", HeartbeatConfig{Describe: func() Member {
		beats.Add(1)
		return Member{Instance: "one"}
	}})
	check.Until(t, "two heartbeats", func() bool { return beats.Load() >= 2 })
	if state := one.State(); state.Live != 1 || state.Answered.IsZero() || state.Failure != "" {
		t.Errorf("alone in the fleet: %+v", state)
	}
	two, _ := f.beating("two", HeartbeatConfig{})
	check.Until(t, "both to know of each other", func() bool { return one.State().Live == 2 && two.State().Live == 2 })
	stop()
	check.Until(t, "the other to know that it left", func() bool { return two.State().Live == 1 })
	if got := f.members(); strings.Contains(got, "one ") || !strings.Contains(got, "two true host of two") {
		t.Errorf("members: %s", got)
	}
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
	log := &check.Log{}
	downs := func() int { return len(log.Lines("redis does not serve this scanner")) }
	ups := func() int { return len(log.Lines("redis serves this scanner again")) }
	h, _ := f.beating("one", HeartbeatConfig{
		Describe: func() Member {
			beats.Add(1)
			return Member{Instance: "one"}
		},
		Advice: func(string) string { return advice.Load().(string) },
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	})
	further := func(what string) {
		n := beats.Load() + 2
		check.Until(t, what, func() bool { return beats.Load() >= n })
	}
	further("heartbeats")
	deaf.Store(true)
	further("heartbeats that fail")
	down := h.State()
	if !strings.Contains(down.Failure, "nobody answers") || downs() != 1 {
		t.Errorf("%d lines, %+v", downs(), down)
	}
	advice.Store("; start it")
	further("heartbeats with advice")
	if s := h.State(); !strings.Contains(s.Failure, "; start it") || !s.Answered.Equal(down.Answered) || s.Live != 1 ||
		downs() != 2 {
		t.Errorf("%d lines, %+v after %+v", downs(), s, down)
	}
	deaf.Store(false)
	further("heartbeats that are answered")
	if s := h.State(); s.Failure != "" || !s.Answered.After(down.Answered) || ups() != 1 || downs() != 2 {
		t.Errorf("%d and %d lines, %+v after %+v", downs(), ups(), s, down)
	}
}
