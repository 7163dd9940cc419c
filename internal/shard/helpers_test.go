package shard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// sandbox is a topic of one test's own, under the placement it began with.
type sandbox struct {
	*Topic
	rdb     redis.UniversalClient
	scripts *luascript.Client
	t       *testing.T
	p       Placement
}

func newSandbox(t *testing.T, shards int) *sandbox {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	return sandboxOn(t, servertest.RedisOptions(addr), prefix, shards)
}

// sandboxOn is a corner of a Redis of the test's own. A reply that is slow to come
// is not taken for lost.
func sandboxOn(t *testing.T, options *redis.UniversalOptions, prefix string, shards int) *sandbox {
	t.Helper()
	options.DialTimeout, options.ReadTimeout = check.Hang, check.Hang
	rdb := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := New(rdb, prefix)
	check.OK(t, err)
	c := &sandbox{Topic: store.Topic("orders"), rdb: rdb, scripts: store.scripts, t: t}
	c.p, err = c.Ensure(t.Context(), shards)
	check.OK(t, err)
	return c
}

// fleetKey names one key of internal/registry.
func (c *sandbox) fleetKey(kind string) string { return c.store.prefix + ":" + kind }

// noteCancelled leaves a consumer the note of a cancel.
func (c *sandbox) noteCancelled(id string, at int64) error {
	return c.NoteCancelled(c.t.Context(), []string{id}, []int64{at})[0].Err
}

// command is a call by the script's text, to send in a pipeline of the test's own.
func (c *sandbox) command(call luascript.Call) *redis.Cmd {
	c.t.Helper()
	text, err := Script(call.Script)
	check.OK(c.t, err)
	args := []any{"eval", text, len(call.Keys)}
	for _, key := range call.Keys {
		args = append(args, key)
	}
	for _, arg := range call.Args {
		if _, ok := arg.(luascript.DeadlineArg); ok {
			arg = call.Deadline
		}
		args = append(args, arg)
	}
	return redis.NewCmd(c.t.Context(), args...)
}

// claimHead is how many elements of a claim's answer come before its tasks.
const claimHead = 5

// now returns Redis\'s time in ms.
func (c *sandbox) now() int64 { return servertest.RedisNow(c.t, c.rdb).UnixMilli() }

// notAfter is so far away that no call is late, however slow the machine is.
func (c *sandbox) notAfter() int64 {
	c.t.Helper()
	return c.now() + time.Hour.Milliseconds()
}

// soonAfter is the one that a producer would give a call that begins now.
func (c *sandbox) soonAfter() int64 {
	c.t.Helper()
	at, err := c.scripts.Deadline(c.t.Context())
	check.OK(c.t, err)
	return at
}

func body(payload string) []byte { return EncodeBody(&task.Task{Payload: []byte(payload)}) }

func entry(id string, when task.When) Entry {
	return Entry{ID: id, When: when, Body: body("payload of " + id)}
}

// tryPut stores entries in one shard under p.
func (c *sandbox) tryPut(p Placement, b Put) PutResult {
	c.t.Helper()
	if b.Op == "" {
		b.Op = NewOp()
	}
	return c.Put(c.t.Context(), p, c.notAfter(), []Put{b})[0]
}

// put stores tasks in shard 0, all due at when, and returns their due in ms.
func (c *sandbox) put(when task.When, ids ...string) []int64 {
	c.t.Helper()
	b := Put{}
	for _, id := range ids {
		b.Entries = append(b.Entries, entry(id, when))
	}
	r := c.tryPut(c.p, b)
	check.OK(c.t, r.Err)
	return r.Due
}

// claim asks for up to 1000 tasks of shard 0 for a minute, under a request of
// its own.
func (c *sandbox) claim() Batch {
	c.t.Helper()
	return c.claimFor(time.Minute)
}

func (c *sandbox) claimFor(lease time.Duration) Batch {
	c.t.Helper()
	return c.ask(Claim{Claimant: "w", Request: string(NewOp()), Limit: MaxBatch, Lease: lease})
}

func (c *sandbox) ask(claim Claim) Batch {
	c.t.Helper()
	return c.askAt(0, claim)
}

// askAt asks another shard than 0.
func (c *sandbox) askAt(shard int, claim Claim) Batch {
	c.t.Helper()
	b, err := c.Shard(shard).Claim(c.t.Context(), claim)
	check.OK(c.t, err)
	return b
}

// claimIDs claims and ends the test unless it got exactly these tasks.
func (c *sandbox) claimIDs(want ...string) Batch {
	c.t.Helper()
	for _, id := range want {
		c.reach(id)
	}
	b := c.claim()
	c.sameIDs(b, want...)
	return b
}

// reach waits for a task that is due in the next ms: it replaced one that was claimed.
func (c *sandbox) reach(id string) {
	c.t.Helper()
	due := int64(c.rdb.ZScore(c.t.Context(), c.Shard(0).due(), id).Val())
	if now := c.now(); due == now+1 {
		check.Until(c.t, "the next ms", func() bool { return c.now() >= due })
	}
}

func (c *sandbox) sameIDs(b Batch, want ...string) {
	c.t.Helper()
	got := idsOf(b)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Fatalf("claimed %q, want %q", got, want)
	}
}

func idsOf(b Batch) []string {
	ids := make([]string, len(b.Tasks))
	for i, t := range b.Tasks {
		ids[i] = t.ID
	}
	slices.Sort(ids)
	return ids
}

func leases(b Batch) []Lease {
	l := make([]Lease, len(b.Tasks))
	for i, t := range b.Tasks {
		l[i] = Lease{ID: t.ID, Token: t.Token}
	}
	return l
}

func (c *sandbox) settle(l ...Lease) int {
	c.t.Helper()
	n, err := c.Shard(0).Settle(c.t.Context(), l)
	check.OK(c.t, err)
	return n
}

func (c *sandbox) release(r ...Release) int {
	c.t.Helper()
	n, err := c.Shard(0).Release(c.t.Context(), r)
	check.OK(c.t, err)
	return n
}

// read returns a task of shard 0, which must be there.
func (c *sandbox) read(id string) Stored {
	c.t.Helper()
	s, err := c.Shard(0).Read(c.t.Context(), c.p, id)
	check.OK(c.t, err)
	return s
}

// gone ends the test if a task is in shard 0, in the set or in the hash.
func (c *sandbox) gone(id string) {
	c.t.Helper()
	if _, err := c.Shard(0).Read(c.t.Context(), c.p, id); !errors.Is(err, task.ErrNotFound) {
		c.t.Fatalf("task %q is still there (%v)", id, err)
	}
	if err := c.rdb.ZScore(c.t.Context(), c.Shard(0).due(), id).Err(); !errors.Is(err, redis.Nil) {
		c.t.Fatalf("task %q has still a score (%v)", id, err)
	}
}

// in ends the test unless a task of shard 0 is in a state.
func (c *sandbox) in(id string, want task.State) Stored {
	c.t.Helper()
	s := c.read(id)
	check.Equal(c.t, fmt.Sprintf("state of task %q", id), s.State, want)
	return s
}

// Delete removes tasks in whatever state and returns which were there.
func (c *sandbox) Delete(ctx context.Context, shard int, p Placement, notAfter int64, handled bool,
	ids ...string) ([]bool, error) {
	w := c.Withdraw(ctx, p, notAfter, []Deletion{{Names: Names{shard, ids}, Handled: handled}})[0]
	return w.There, w.Err
}

func (c *sandbox) delete(id string) bool {
	c.t.Helper()
	there, err := c.Delete(c.t.Context(), 0, c.p, c.notAfter(), false, id)
	check.OK(c.t, err)
	return there[0]
}

// park brings a waiting, due task to be parked.
func (c *sandbox) park(id, reason string) {
	c.t.Helper()
	b := c.claimIDs(id)
	check.Equal(c.t, "parked", c.release(Release{Lease: leases(b)[0], Park: true, Attempted: true, Reason: reason}), 1)
}

// begin changes the shard count and moves the corner on to the new placement.
func (c *sandbox) begin(shards int) (before Placement) {
	c.t.Helper()
	before = c.p
	done, err := c.Begin(c.t.Context(), c.p, shards)
	check.OK(c.t, err)
	check.Equal(c.t, "the change began", done, true)
	c.p, err = c.Placement(c.t.Context())
	check.OK(c.t, err)
	return before
}
