package shard

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// amqpBody is the body of a message with a routing key, a property and a typed header.
func amqpBody(t *testing.T, payload string) string {
	t.Helper()
	b, err := amqpmsg.Encode(amqpmsg.Message{
		RoutingKey: "order.due", Properties: amqpmsg.Properties{AppID: "shop", Priority: 3},
		Headers: map[string]any{"n": int64(7)}, Body: []byte(payload),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// putAMQP stores messages of AMQP.
func (c *sandbox) putAMQP(when task.When, ids ...string) {
	c.t.Helper()
	entries := make([]Entry, len(ids))
	for i, id := range ids {
		entries[i] = Entry{ID: id, When: when, Body: []byte(amqpBody(c.t, id))}
	}
	check.OK(c.t, c.tryPut(c.p, Put{Op: NewOp(), Entries: entries}).Err)
}

// isAMQP checks that a task still has the message that was put.
func (c *sandbox) isAMQP(tk task.Task) {
	c.t.Helper()
	if tk.AMQP == nil {
		c.t.Fatalf("%s is no message of AMQP: %+v", tk.ID, tk)
	}
	check.Equal(c.t, tk.ID+": body", bodyOf(&tk), amqpBody(c.t, tk.ID))
}

// raw returns the stored record of a task.
func (c *sandbox) raw(id string) string {
	c.t.Helper()
	raw, err := c.rdb.HGet(c.t.Context(), c.Shard(0).tasks(), id).Result()
	check.OK(c.t, err)
	return raw
}

func TestAPutStoresAMessageOfAMQPAsFormat2(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.now() + time.Hour.Milliseconds()
	at := task.At(time.UnixMilli(due))
	body := amqpBody(t, "a")
	check.OK(c.t, c.tryPut(c.p, Put{Op: "ABCDEF", Entries: []Entry{
		entry("before", at), {ID: "a", When: at, Body: []byte(body)}, entry("behind", at),
	}}).Err)
	raw := c.raw("a")
	check.Equal(t, "record", raw, "\x20"+big48(due)+raw[7:13]+"ABCDEF"+body)
	for _, id := range []string{"before", "behind"} {
		check.Equal(t, id+": format", c.raw(id)[0], 16)
	}
	c.isAMQP(c.read("a").Task)
	c.put(task.In(time.Hour), "a")
	check.Equal(t, "format after a library replaced it", c.raw("a")[0], 16)
}

// TestEveryStepKeepsAMessageOfAMQP: a claim, a return, a lease that ran out, parking,
// replay, a reschedule, an export and its import leave the message as it is.
func TestEveryStepKeepsAMessageOfAMQP(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.putAMQP(task.Now(), "a")
	b := c.claimIDs("a")
	c.isAMQP(b.Tasks[0].Task)
	c.release(Release{Lease: leases(b)[0], Attempted: true, Redelivered: true, Reason: "returned"})
	s := c.read("a")
	c.isAMQP(s.Task)
	check.Equal(t, "reason", s.Reason, "returned")
	check.Equal(t, "flags", c.raw("a")[0], 2*formatUnit+flagRedelivered|flagNoted|flagAttempted)

	b = c.claimFor(20 * time.Millisecond)
	check.Equal(t, "attempt", b.Tasks[0].Attempt, 2)
	check.Until(t, "the lease runs out", func() bool { b = c.claim(); return len(b.Tasks) == 1 })
	c.isAMQP(b.Tasks[0].Task)
	c.release(Release{Lease: leases(b)[0], Park: true, Attempted: true, Reason: "last"})
	c.isAMQP(c.in("a", task.Parked).Task)
	page, err := c.Shard(0).Parked().Next(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "parked", len(page), 1)
	check.Equal(t, "routing key of the list", page[0].AMQP.RoutingKey, "order.due")
	check.Equal(t, "bytes of the payload", page[0].PayloadBytes, 1)
	n, err := c.Shard(0).Replay(c.t.Context(), "a")
	check.OK(c.t, err)
	check.Equal(t, "replayed", n, 1)
	c.isAMQP(c.in("a", task.Waiting).Task)
	_, err = c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.In(time.Hour)})
	check.OK(c.t, err)
	s = c.in("a", task.Waiting)
	c.isAMQP(s.Task)
	check.Equal(t, "attempt after a reschedule", s.Attempt, 1)
	check.Equal(t, "format without flags", c.raw("a")[0], 2*formatUnit)
	check.Equal(t, "deleted", c.delete("a"), true)
}

func TestAMessageOfAMQPMovesToAnotherShard(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.putAMQP(task.In(time.Hour), "a")
	export := c.export(time.Minute, "a")
	check.Equal(t, "exported", len(export.Tasks), 1)
	before := c.raw("a")
	check.Equal(t, "imported", c.importBatch(export), 1)
	moved, err := c.rdb.HGet(c.t.Context(), c.Shard(1).tasks(), "a").Result()
	check.OK(c.t, err)
	check.Equal(t, "record", moved, before)
}

func TestAListWithoutPayloadsHasTheMessage(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.putAMQP(task.In(time.Hour), "a")
	for _, part := range []part{partHead, partMeta, partWhole} {
		list := c.Shard(0).List(SpanOf(task.Waiting), "")
		list.part = part
		all := c.listAll(list, nil)
		check.Equal(t, "listed", len(all), 1)
		one := all[0]
		check.OK(c.t, one.Err)
		check.Equal(t, "it has the message", one.AMQP != nil, part != partHead)
		check.Equal(t, "it has the payload", string(one.Payload) == "a", part == partWhole)
		if part == partMeta {
			check.Equal(t, "bytes of the payload", one.PayloadBytes, 1)
			check.Equal(t, "a header", one.AMQP.Headers["n"], any(int64(7)))
		}
	}
}

// TestAListOfHeadsMayHaveMessages: also next to tasks of format 1, and damaged ones.
func TestAListOfHeadsMayHaveMessages(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.putAMQP(task.In(time.Hour), "a")
	c.put(task.In(time.Hour), "library")
	c.plant("cut", "\x20"+headRest+"\x02\x05key", float64(c.now()+time.Hour.Milliseconds()))
	list := c.Shard(0).List(SpanOf(task.Waiting), "")
	list.ReadMessages()
	all := c.listAll(list, nil)
	check.Equal(t, "listed", len(all), 3)
	for _, s := range all {
		check.OK(c.t, s.Err)
		check.Equal(t, s.ID+" has a message", s.AMQP != nil, s.ID == "a")
		check.Equal(t, s.ID+": bytes of the payload", len(s.Payload), 0)
	}
}

// TestADamagedMessageOfAMQPIsBad: its body is neither delivered nor does it stop others.
func TestADamagedMessageOfAMQPIsBad(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.plant("cut", "\x20"+headRest+"\x02\x05key", 1)
	c.plant("another", "\x20"+headRest+"\x01\x00\x00payload", 1)
	c.putAMQP(task.Now(), "a")
	b := c.claimIDs("a")
	check.Equal(t, "bad", len(b.Bad), 2)
	for _, bad := range b.Bad {
		if !strings.Contains(bad.Err.Error(), "decode message") {
			t.Errorf("%s: %v", bad.ID, bad.Err)
		}
	}
}

// TestAnEarlierVersionLeavesMessagesOfAMQPAlone: its scripts know format 1 alone. They set
// such a task aside for a minute, export, reschedule and replay nothing of it, and keep
// its bytes.
func TestAnEarlierVersionLeavesMessagesOfAMQPAlone(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.putAMQP(task.Now(), "due")
	c.putAMQP(task.In(time.Hour), "later")
	c.putAMQP(task.Now(), "parked")
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: math.Inf(1), Member: "parked"}).Err())
	want := map[string]string{"due": c.raw("due"), "later": c.raw("later"), "parked": c.raw("parked")}
	s := c.Shard(0)

	claimed, err := c.earlier("claim", []string{s.due(), s.tasks(), s.fence(), s.memory("w")},
		1, 10, 30_000, 1<<20, c.notAfter(), 0, 0)
	check.OK(c.t, err)
	values, _ := claimed.([]any)
	check.Equal(t, "parts of the reply", len(values), 5)
	check.Equal(t, "skipped", values[3], any(int64(1)))
	if wait := c.rdb.ZScore(c.t.Context(), s.due(), "due").Val() - float64(c.now()); wait < 50_000 || wait > 60_000 {
		t.Errorf("set aside for %v ms", wait)
	}
	moved, err := c.earlier("reschedule", s.taskKeys(s.Wake()),
		c.p.String(), 0, c.notAfter(), "", 1, string(NewOp()), "later", "+1", "")
	check.OK(c.t, err)
	check.Equal(t, "moved", fmt.Sprint(moved), "[ok -1]")
	replayed, err := c.earlier("replay", []string{s.due(), s.tasks(), s.Wake(), s.fence()}, "parked")
	check.OK(c.t, err)
	check.Equal(t, "replayed", replayed, any(int64(0)))
	exported, err := c.earlier("export", append(s.taskKeys(), s.memory("m")), c.p.String(), 1, 30_000, 0, 1<<20, "later")
	check.OK(c.t, err)
	values, _ = exported.([]any)
	check.Equal(t, "parts of the export", len(values), 4)
	for id, record := range want {
		check.Equal(t, id, c.raw(id), record)
	}
}

// earlier runs a script as the version before format 2 had it.
func (c *sandbox) earlier(name string, keys []string, args ...any) (any, error) {
	c.t.Helper()
	text, err := Script(name)
	check.OK(c.t, err)
	const now, before = "first < 80", "first < 32"
	if !strings.Contains(text, now) {
		c.t.Fatalf("script %s has no %q", name, now)
	}
	return c.rdb.Eval(c.t.Context(), strings.Replace(text, now, before, 1), keys, args...).Result()
}
