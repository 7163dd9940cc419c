package intake

import (
	"fmt"
	"maps"
	"slices"
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
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// alone is an intake whose Redis has no replica. From some time on it waits for one.
type alone struct {
	*harness
	server *servers.Redis
	tries  atomic.Int32 // since then
}

// newAlone starts the intake and stores tasks with some IDs, due in an hour. Then it waits for
// a replica, and has the messages of publish as one batch. It leaves its queue as soon as Redis
// fails.
func newAlone(t *testing.T, publish func(a *alone), ids ...string) *alone {
	t.Helper()
	a := &alone{server: servertest.OwnRedis(t)}
	a.harness = newHarnessOn(t, fixture.At(t, a.server.Addr(), "p"))
	a.pace.handOver, a.pace.unknown = time.Nanosecond, time.Nanosecond
	arrived := make(chan struct{})
	var armed, waits atomic.Bool
	var received atomic.Int32
	a.pace.arrived = func() { received.Add(1) }
	a.pace.stored = func() {
		if armed.Load() && !waits.Swap(true) {
			<-arrived
			if err := a.redis.Store.AwaitReplicas(1); err != nil {
				t.Error(err)
			}
		} else if waits.Load() {
			a.tries.Add(1)
		}
	}
	a.start()
	for _, id := range ids {
		a.publish(newMessage(id, HeaderIn, "1h"))
	}
	a.settled()
	armed.Store(true)
	a.publish(newMessage("first", HeaderIn, "1h"))
	check.Until(t, "the first to be stored", func() bool { return len(a.records()) == len(ids)+1 })
	publish(a)
	check.Until(t, "the others to be one batch", func() bool { return int(received.Load()) == a.published })
	close(arrived)
	return a
}

// tried waits until messages were tried some more times. Each try waits a second for replicas.
func (a *alone) tried(more int32) {
	a.t.Helper()
	enough := a.tries.Load() + more
	check.Until(a.t, "some tries", func() bool { return a.tries.Load() >= enough })
}

// replicate starts a replica.
func (a *alone) replicate() {
	a.t.Helper()
	host, port, _ := strings.Cut(a.server.Addr(), ":")
	servertest.OwnRedis(a.t, "--replicaof", host+" "+port)
}

// dues returns the due times of all stored tasks by ID.
func (h *harness) dues() map[string]int64 {
	h.t.Helper()
	all := map[string]int64{}
	for id, s := range h.records() {
		all[id] = s.due.UnixMilli()
	}
	return all
}

// TestWhileReplicasAreMissingNoTaskMultiplies: the queue isn't left to others, since they have the
// same master. Nothing is acked, and no due time changes.
func TestWhileReplicasAreMissingNoTaskMultiplies(t *testing.T) {
	t.Parallel()
	const messages = 20
	a := newAlone(t, func(a *alone) {
		for i := range messages / 2 {
			a.publish(newMessage("", HeaderIn, "1h"))
			a.publish(newMessage(fmt.Sprint("named", i), HeaderIn, "1h"))
		}
	})
	check.Until(t, "all to be stored", func() bool { return len(a.records()) == messages+1 })
	before := a.dues()
	a.tried(3)
	if !strings.Contains(a.in.Trouble(), task.ErrReplicas.Error()) || a.unacked() < messages*itemBytes {
		t.Errorf("trouble %q, %d bytes unacked", a.in.Trouble(), a.unacked())
	}
	a.replicate()
	a.settled()
	if after := a.dues(); !maps.Equal(before, after) {
		t.Errorf("before: %v; after: %v", before, after)
	}
}

// TestAnAnswerIsTrueOnceReplicasAreBack: a message was carried out when only the master had it.
// Its answer says so, also if the task is delivered while replicas are missing.
func TestAnAnswerIsTrueOnceReplicasAreBack(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"stored": false, "delivered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var to string
			a := newAlone(t, func(a *alone) {
				to = a.answers()
				a.publish(request(to, "move", "move", Move, HeaderIn, "2h"))
				a.publish(request(to, "if-present", "if-present", IfPresent, HeaderIn, "2h"))
				a.publish(request(to, "none", "none", Move, HeaderIn, "2h"))
				a.publish(request(to, "cancel", "cancel", Cancel))
				a.publish(request(to, "never stored", "never stored", Cancel))
			}, "move", "if-present", "cancel")
			later := time.Now().Add(90 * time.Minute).UnixMilli()
			check.Until(t, "all three to be done", func() bool {
				now := a.dues()
				return now["move"] > later && now["if-present"] > later && now["cancel"] == 0
			})
			want := a.dues()
			a.tried(2)
			if gone {
				for shard := range a.placement.Shards {
					key := fmt.Sprintf("%s:task:{orders:%d}", a.redis.Prefix, shard)
					check.OK(t, a.redis.Client.HDel(t.Context(), key, "move", "if-present").Err())
				}
			}
			a.replicate()
			for range 5 {
				r, of := a.answer(to)
				switch {
				case (of == "none" || of == "never stored") && r.Code == codeNotFound:
				case of == "none" || of == "never stored" || r.Code != codeOK || r.Due != want[of]:
					t.Errorf("%s is answered %+v, want due %d", of, r, want[of])
				}
			}
		})
	}
}

// TestLostRepliesMultiplyNoTask: Redis stores messages without IDs, and its replies are lost. The
// queue isn't left to another scanner at once. After a while it is, if Redis stays away.
func TestLostRepliesMultiplyNoTask(t *testing.T) {
	t.Parallel()
	text, err := shard.Script("put")
	check.OK(t, err)
	for name, patience := range map[string]time.Duration{"soon back": time.Hour, "gone for long": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.pace.handOver, h.pace.unknown = time.Nanosecond, patience
			var away atomic.Bool
			h.redis.Store = h.breakable(func(r faults.Request) bool {
				put := slices.ContainsFunc(r.Commands, func(c redis.Cmder) bool { return faults.Runs(c, text) })
				return away.Load() && (put || r.Commands[0].Name() == "time")
			})
			var tries atomic.Int32
			h.pace.stored = func() { tries.Add(1) }
			const messages = 10
			end := h.start()
			h.publish(newMessage("first", HeaderIn, "1h")) // Redis knows the script then
			h.settled()
			away.Store(true)
			tries.Store(0)
			for range messages {
				h.publish(newMessage("", HeaderIn, "1h"))
			}
			if patience == time.Nanosecond {
				check.Until(t, "the queue to be left", func() bool { return strings.Contains(h.log.String(), "left to other") })
				end()
				check.Until(t, "the messages to be in the queue", func() bool { return h.waiting(queue) == messages })
				return
			}
			check.Until(t, "a second try", func() bool { return tries.Load() >= 2 })
			away.Store(false)
			h.settled()
			check.Equal(t, "tasks", len(h.records()), messages+1)
		})
	}
}
