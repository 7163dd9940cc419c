package registry_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// sandbox is the registry of one test's own, with the topic orders.
type sandbox struct {
	*registry.Registry
	topic  *shard.Topic
	rdb    redis.UniversalClient
	prefix string
	t      *testing.T
	p      shard.Placement
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	r := fixture.New(t)
	topic, p := r.Serve(t, 1)
	return &sandbox{Registry: r.Store.Registry(), topic: topic, rdb: r.Client, prefix: r.Prefix, t: t, p: p}
}

// now returns Redis\'s time in ms.
func (c *sandbox) now() int64 { return servertest.RedisNow(c.t, c.rdb).UnixMilli() }

func (c *sandbox) key(kind string) string { return c.prefix + ":" + kind }

// alive and forget are how long an instance may be silent, in these tests.
const alive, forget = 3 * time.Second, 10 * time.Minute

func TestTheFleetIsCountedByItsHeartbeats(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for i, instance := range []string{"a", "a", "b"} {
		before := c.now()
		n, err := c.Heartbeat(c.t.Context(), instance, alive, forget)
		check.OK(c.t, err)
		check.Equal(t, "alive", n, []int{1, 1, 2}[i])
		beat, err := c.rdb.ZScore(c.t.Context(), c.key("fleet"), instance).Result()
		check.OK(c.t, err)
		if int64(beat) < before || int64(beat) > c.now() {
			t.Errorf("%s is heard of at %.0f, want %d or a little later", instance, beat, before)
		}
		c.keepAlive(instance)
	}
	silent := float64(c.now() - alive.Milliseconds() - 1000)
	long := float64(c.now() - forget.Milliseconds() - 1000)
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.key("fleet"), redis.Z{Score: silent, Member: "silent"},
		redis.Z{Score: long, Member: "forgotten"}).Err())
	n, err := c.Heartbeat(c.t.Context(), "a", alive, forget)
	check.OK(c.t, err)
	check.Equal(t, "alive", n, 2)
	c.keepAlive("a")
	full, err := c.Describe(c.t.Context(), "a", []byte("a's note"))
	check.OK(c.t, err)
	check.Equal(t, "full", full, false)
	before := c.now()
	heartbeats, now, err := c.Fleet(c.t.Context())
	check.OK(c.t, err)
	if now.UnixMilli() < before || now.UnixMilli() > c.now() {
		t.Errorf("the fleet is of %d, want %d or a little later", now.UnixMilli(), before)
	}
	notes := map[string]string{}
	for _, h := range heartbeats {
		notes[h.Instance] = h.Note
	}
	check.Equal(t, "heartbeats", fmt.Sprint(notes), fmt.Sprint(map[string]string{"a": "a's note", "b": "", "silent": ""}))
	check.Equal(t, "the oldest", heartbeats[0], registry.Heartbeat{"silent", time.UnixMilli(int64(silent)).UTC(), ""})
	check.OK(c.t, c.Leave(c.t.Context(), "a"))
	n, err = c.Heartbeat(c.t.Context(), "b", alive, forget)
	check.OK(c.t, err)
	check.Equal(t, "alive after one left", n, 1)
}

// TestAHeartbeatReadsRedisClock: sleeping topics go by that, so that they need not ask.
func TestAHeartbeatReadsRedisClock(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	scripts := c.topic.Store().Scripts()
	scripts.AssumeTime(1)
	before := c.now()
	_, err := c.Heartbeat(c.t.Context(), "a", alive, forget)
	check.OK(c.t, err)
	now, age := scripts.Estimate()
	if at := now - age.Milliseconds(); at < before-1 || at > c.now() { // the age is cut to whole milliseconds
		t.Errorf("Redis's clock is taken to be %d, want %d or a little later", at, before)
	}
}

// keepAlive gives an instance a heartbeat that is not over while the test runs.
func (c *sandbox) keepAlive(instance string) {
	c.t.Helper()
	ahead := float64(c.now() + time.Hour.Milliseconds())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.key("fleet"), redis.Z{Score: ahead, Member: instance}).Err())
}

func TestTheNotesOfLongDeadScannersAreForgotten(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for instance, silence := range map[string]time.Duration{
		"alive": -time.Hour, "silent": forget / 2, "dead": forget + time.Second, "long dead": 48 * time.Hour,
	} {
		_, err := c.Describe(c.t.Context(), instance, []byte("{}"))
		check.OK(c.t, err)
		beat := float64(c.now() - silence.Milliseconds())
		check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.key("fleet"), redis.Z{Score: beat, Member: instance}).Err())
	}
	n, err := c.Heartbeat(c.t.Context(), "new", alive, forget)
	check.OK(c.t, err)
	check.Equal(t, "alive", n, 2)
	notes, err := c.rdb.HKeys(c.t.Context(), c.key("fleet:notes")).Result()
	check.OK(c.t, err)
	slices.Sort(notes)
	check.Equal(t, "notes", strings.Join(notes, ", "), "alive, silent")
}

// TestADeadScannerIsForgottenAfterRedisClockWasSetBack: its last heartbeat, which lies
// ahead, doesn't keep it alive until the clock is there again.
func TestADeadScannerIsForgottenAfterRedisClockWasSetBack(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	ahead := float64(c.now() + time.Hour.Milliseconds())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.key("fleet"), redis.Z{Score: ahead, Member: "dead"}).Err())
	beat := func() int {
		live, err := c.Heartbeat(c.t.Context(), "me", 50*time.Millisecond, time.Hour)
		check.OK(c.t, err)
		return live
	}
	beat()
	if score := c.rdb.ZScore(c.t.Context(), c.key("fleet"), "dead").Val(); score > float64(c.now()) {
		t.Fatalf("a heartbeat is %.0f ms ahead", score-float64(c.now()))
	}
	check.Until(t, "one scanner lives", func() bool { return beat() == 1 })
}
