package intake

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// publishMany publishes n messages with IDs of their own, due in an hour.
func (h *harness) publishMany(name string, n int) {
	h.t.Helper()
	for i := range n {
		h.publish(newMessage(fmt.Sprint(name, i), HeaderIn, "1h"))
	}
}

// TestMessagesWaitWhileRedisIsFull: nothing is acked and the topic's status says why. Then
// all is stored.
func TestMessagesWaitWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	h := newHarnessOn(t, fixture.At(t, server.Addr(), "p"))
	h.start()
	h.publishMany("early", 100)
	h.settled()
	check.OK(h.t, h.redis.Client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	h.publishMany("late", 100)
	check.Until(t, "the intake to say why it waits", func() bool {
		return strings.Contains(h.in.Trouble(), "Redis is out of memory")
	})
	if n := len(h.records()); n != 100 {
		t.Errorf("%d tasks while Redis is full", n)
	}
	check.OK(h.t, h.redis.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	h.settled()
	if n := len(h.records()); n != 200 || h.in.Trouble() != "" {
		t.Errorf("%d tasks, trouble %q", n, h.in.Trouble())
	}
	if lines := strings.Count(h.log.String(), "messages of the intake wait"); lines != 1 {
		t.Errorf("%d lines in the log:\n%s", lines, h.log)
	}
}

// breakable returns a store whose requests are lost while cut returns true for them: Redis
// carries them out, and the reply doesn't come.
func (h *harness) breakable(cut func(faults.Request) bool) *shard.Store {
	h.t.Helper()
	rdb := fixture.Client(h.t, h.redis.Addr)
	faults.Around(rdb, func(ctx context.Context, r faults.Request) error {
		if err := r.Send(ctx); !cut(r) {
			return err
		}
		return r.Fail(faults.ErrLost)
	})
	store, err := shard.New(rdb, h.redis.Prefix)
	check.OK(h.t, err)
	return store
}

// TestWhileRedisIsAwayAnotherScannerMayTakeOver: the channel is closed, so the messages are
// in the queue. Another intake with a Redis that answers stores them.
func TestWhileRedisIsAwayAnotherScannerMayTakeOver(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver = 100 * time.Millisecond
	var away atomic.Bool
	good := h.redis.Store
	h.redis.Store = h.breakable(func(faults.Request) bool { return away.Load() })
	h.start()
	h.publishMany("early", 10)
	h.settled()
	away.Store(true)
	h.publishMany("late", 10)
	check.Until(t, "the messages to be in the queue again", func() bool {
		return h.unacked() == 0 && h.waiting(queue) == 10
	})
	first := h.in
	h.redis.Store = good
	h.start()
	h.settled()
	if n := len(h.records()); n != 20 || first.Trouble() == "" || h.in.Trouble() != "" {
		t.Errorf("%d tasks, trouble %q, and of the other %q", n, first.Trouble(), h.in.Trouble())
	}
}

// TestAShardThatFailsMultipliesNoTask: messages of other shards are acked, although messages
// of the failing shard are between them. Only the latter go back to the queue. Most have no
// ID, so one that went back after it was stored would be another task.
func TestAShardThatFailsMultipliesNoTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver = time.Nanosecond // so the channel is closed right after the acks
	arrived := make(chan struct{})
	var tries atomic.Int32
	h.pace.stored = func() {
		<-arrived
		tries.Add(1)
	}
	h.start()
	h.publish(newMessage("first", HeaderIn, "1h"))
	check.Until(t, "the first to be stored", func() bool { return len(h.records()) == 1 })
	other := (h.placement.New("first") + 1) % h.placement.Shards
	const messages = 52 // fewer than the prefetch
	for range messages - 2 {
		h.publish(newMessage("", HeaderIn, "1h"))
	}
	for id := range 1000 { // one that no shard but the failing one can take
		if name := fmt.Sprint(id); h.placement.New(name) == other {
			h.publish(newMessage(name, HeaderIn, "1h"))
			break
		}
	}
	check.Until(t, "the others to be one batch", func() bool { return h.unacked() > messages*itemBytes })
	broken := fmt.Sprintf("%s:task:{orders:%d}", h.redis.Prefix, other)
	check.OK(h.t, h.redis.Client.Set(t.Context(), broken, "no hash", 0).Err())
	close(arrived)
	check.Until(t, "the messages to go back and come again", func() bool { return tries.Load() > 5 })
	check.OK(h.t, h.redis.Client.Del(t.Context(), broken).Err())
	h.settled()
	if n := len(h.records()); n != messages || h.counted() != messages {
		t.Errorf("%d messages became %d tasks, %d were carried out", messages, n, h.counted())
	}
}

// TestARefusalThatWaitsMultipliesNoTask: the exchange for refused messages leads nowhere over
// several hand-overs. Messages without IDs around the refused ones are stored and acked once.
func TestARefusalThatWaitsMultipliesNoTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver = time.Nanosecond
	var tries atomic.Int32
	h.pace.stored = func() { tries.Add(1) }
	h.inlet.Declare = false // or each session would fix it
	check.OK(h.t, h.client.QueueUnbind(refused, "", refused, nil))
	const messages, bad = 60, 6
	for i := range messages {
		if i%(messages/bad) == 3 {
			h.publish(newMessage("", HeaderVerb, "none"))
		} else {
			h.publish(newMessage("", HeaderIn, "1h"))
		}
	}
	h.start()
	check.Until(t, "several hand-overs", func() bool { return tries.Load() > 5 })
	check.OK(h.t, h.client.QueueBind(refused, "", refused, false, nil))
	h.settled()
	if n, of := len(h.records()), h.waiting(refused); n != messages-bad || of != bad || h.counted() != messages {
		t.Errorf("%d tasks, %d refused, %d carried out", n, of, h.counted())
	}
}

// TestARequestOfUnknownOutcomeIsRepeated: its reply is lost, and Redis is away for a while.
// Each task is stored once, and none with if-absent is in its own way.
func TestARequestOfUnknownOutcomeIsRepeated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var away, armed atomic.Bool
	armed.Store(true)
	h.redis.Store = h.breakable(func(r faults.Request) bool {
		if len(h.records()) > 0 && armed.Swap(false) {
			away.Store(true)
		}
		return away.Load()
	})
	to := h.answers()
	for i := range 5 {
		h.publish(request(to, fmt.Sprint("t", i), fmt.Sprint("t", i), IfAbsent, HeaderIn, "1h"))
		h.publish(request(to, fmt.Sprint("s", i), fmt.Sprint("s", i), Schedule, HeaderIn, "1h"))
	}
	h.start()
	check.Until(t, "the outcome to be unknown", func() bool {
		return strings.Contains(h.in.Trouble(), task.ErrUncertain.Error())
	})
	before := h.records()
	away.Store(false)
	h.settled()
	for range 10 {
		r, of := h.answer(to)
		if stored, there := before[of]; r.Code != codeOK || there && r.Due != stored.due.UnixMilli() {
			t.Errorf("%s is answered %+v", of, r)
		}
	}
	if n := len(h.records()); n != 10 {
		t.Errorf("%d tasks", n)
	}
}

// TestAScannerThatDiesBeforeTheAck: its messages are delivered again and stored with the
// same values. A task with if-absent isn't in its own way, also when M changes meanwhile.
func TestAScannerThatDiesBeforeTheAck(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(h *harness){
		"the shards stay": func(*harness) {},
		"M changes": func(h *harness) {
			began, err := h.redis.Orders().Begin(h.t.Context(), h.placement, 7)
			if check.OK(h.t, err); !began {
				h.t.Fatal("the change didn't begin")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			dead := make(chan struct{})
			h.pace.stored = func() { <-dead }
			end := h.start()
			to := h.answers()
			h.publish(request(to, "absent", "absent", IfAbsent, HeaderIn, "1h"))
			first, _ := h.answer(to)
			before := h.one()
			h.endIn() // RabbitMQ loses the scanner before it gets the ack
			close(dead)
			end()
			between(h)
			h.pace.stored = nil
			h.start()
			again, of := h.answer(to)
			if first.Code != codeOK || again != first || of != "absent" {
				t.Errorf("answered %+v, and again %+v", first, again)
			}
			if after := h.one(); !after.due.Equal(before.due) {
				t.Errorf("due at %v, then at %v", before.due, after.due)
			}
			h.publish(request(to, "another", "absent", IfAbsent, HeaderIn, "1h"))
			if other, _ := h.answer(to); other.Code != codeExists {
				t.Errorf("another request is answered %+v", other)
			}
		})
	}
}

// TestARedeliveryReplacesTheTask: the scanner dies between Redis's reply and the ack. The
// task is stored again with the same values; one without an ID is stored twice.
func TestARedeliveryReplacesTheTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	dead := make(chan struct{})
	h.pace.stored = func() { <-dead }
	end := h.start()
	h.publish(newMessage("a", HeaderIn, "1h"))
	h.publish(newMessage("", HeaderIn, "1h"))
	h.publish(newMessage("b", HeaderDue, int64(4_102_444_800_000)))
	check.Until(t, "some to be stored", func() bool { return len(h.records()) > 0 })
	before := h.records()
	h.endIn()
	close(dead)
	end()
	h.pace.stored = nil
	h.start()
	h.settled()
	// a message on its way to the intake is neither waiting nor unacked
	check.Until(t, "the rest to be stored", func() bool {
		_, a := h.records()["a"]
		_, b := h.records()["b"]
		return a && b && len(h.records()) >= 3 && h.waiting(queue) == 0 && h.unacked() == 0
	})
	after := h.records()
	if n := len(after); n < 3 || n > 4 || after["a"].delay() != time.Hour ||
		after["b"].due.UnixMilli() != 4_102_444_800_000 {
		t.Errorf("%d tasks before, then %d: %v", len(before), n, after)
	}
}

// TestTheIntakeStopsBetweenBatches: what isn't acked is in the queue for another scanner,
// and nothing is lost.
func TestTheIntakeStopsBetweenBatches(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	end := h.start()
	h.publishMany("many", 2000)
	check.Until(t, "some to be stored", func() bool { return h.counted() > 0 })
	end()
	if h.unacked() != 0 {
		t.Errorf("%d bytes are held after the end", h.unacked())
	}
	h.start()
	check.Until(t, "all to be stored", func() bool { return len(h.records()) == 2000 && h.waiting(queue) == 0 })
}

// TestAQueueThatIsDeletedIsDeclaredAgain, and the log says so once.
func TestAQueueThatIsDeletedIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publishMany("before", 1)
	h.settled()
	_, err := h.client.QueueDelete(queue, false, false, false)
	check.OK(h.t, err)
	check.Until(t, "the intake to run again", func() bool {
		return strings.Contains(h.log.String(), "intake takes messages")
	})
	h.publish(newMessage("after"))
	h.settled()
	if n := strings.Count(h.log.String(), "intake stands still"); n != 1 || len(h.records()) != 2 {
		t.Errorf("%d lines, %d tasks:\n%s", n, len(h.records()), h.log)
	}
}

// TestAMessageIsDeliveredAgainWithoutEnd: scanners that can't store it give it back by
// closing their channels. RabbitMQ 4.0 and later dead-letter it after 20 deliveries by
// default. It is stored as it was published.
func TestAMessageIsDeliveredAgainWithoutEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.publish(newMessage("a", HeaderIn, "1h"))
	for range 25 {
		ch := servertest.Channel(t, h.url)
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		check.OK(h.t, err)
		check.Receive(t, "the message", deliveries)
		check.OK(h.t, ch.Close())
	}
	h.start()
	h.settled()
	if n, headers := h.waiting(refused), h.one().message.Headers; n != 0 || len(headers) != 0 {
		t.Errorf("%d messages refused, the task has headers %v", n, headers)
	}
}
