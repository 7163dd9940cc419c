//go:build chaos

package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestIntakeCrashPoints: the scanner that takes messages in crashes before and after it
// stores some of them, and around their ack. RabbitMQ delivers them again to another one.
func TestIntakeCrashPoints(t *testing.T) {
	crasher := buildCrasher(t)
	for _, step := range []string{
		"before put 20",
		"after put 20",      // stored, not acked
		"after put 20 2ms",  // perhaps acked
		"after put 20 20ms", // acked, and the next ones are on their way
	} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			r := newHarness(t, options{scanners: 1, intake: true})
			other := r.scanners[0]
			r.await("the other scanner to consume", func() bool { return r.takers() == 1 })
			check.OK(t, other.Kill())
			r.await("no consumer", func() bool { return r.takers() == 0 })
			r.startBinary(crasher, 1, "DUEFLEET_TEST_CRASH="+step)
			victim := r.scanners[1]
			r.await("the victim to consume", func() bool { return r.takers() == 1 })
			r.again(other) // it waits for its turn
			r.beginIntake()
			select {
			case <-victim.Gone():
			case <-time.After(patience):
				t.Fatalf("the scanner did not end %s", step)
			}
			r.scanners = r.scanners[:1]
			r.lasts(2 * time.Second)
			r.intakeVerdict("intake: scanner ends "+step, allowance{repeats: inFlight + redelivered, unmarked: redelivered})
		})
	}
}

// TestIntakeScannersKilled: kill -9 of one scanner after the other, at any step.
func TestIntakeScannersKilled(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	const kills = 6
	r.killEach(kills, 1500*time.Millisecond)
	r.intakeVerdict("intake: scanners kill -9, six times",
		allowance{repeats: kills * (inFlight + redelivered), unmarked: kills * redelivered})
}

// TestIntakeStalled: SIGSTOP of each scanner in turn, for longer than RabbitMQ waits for it. When it
// has the intake's queue, another one takes over, and the first one wakes.
func TestIntakeStalled(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	rounds := len(r.scanners)
	for _, s := range r.scanners {
		check.OK(t, s.Pause())
		r.lasts(35 * time.Second)
		check.OK(t, s.Resume())
		r.lasts(time.Second)
	}
	r.intakeVerdict("intake: each scanner stalls for 35 s in turn (SIGSTOP)",
		allowance{repeats: rounds * (inFlight + redelivered), unmarked: rounds * redelivered})
}

// TestIntakeHostile: clients publish messages that can't be read and bodies that are too
// large. Meanwhile the queue for refused messages is full, and then Redis refuses a shard. Both last
// longer than a scanner keeps the intake's queue without success. All other messages are taken in,
// and the refused ones are kept, each once. A message without an ID makes one task.
// With many topics a body of 3 MiB doesn't fit into the share of one, and is rejected.
func TestIntakeHostile(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	limit := func(messages int) {
		r.ctl("set_policy", "full", "^"+refusedQueue+"$", fmt.Sprintf(`{"max-length":%d,"overflow":"reject-publish"}`,
			messages))
	}
	limit(1)
	const poisoned = 100
	r.poison(poisoned)
	r.unnamed(200)
	r.lasts(70 * time.Second)
	r.ctl("clear_policy", "full") // RabbitMQ 3.10 goes on refusing what it dead-letters
	limit(1_000_000)
	r.takeRefused("bad-", poisoned, 2*deadLetterRetry+patience)
	key := r.settings.RedisPrefix + ":due:{orders:1}"
	check.OK(t, r.client.Rename(t.Context(), key, key+".aside").Err())
	check.OK(t, r.client.Set(t.Context(), key, "no shard", 0).Err())
	r.unnamed(200)
	r.lasts(70 * time.Second)
	check.OK(t, r.client.Rename(t.Context(), key+".aside", key).Err())
	r.flows("tasks once the shard is back")
	r.lasts(2 * time.Second)
	r.eachUnnamedOnce(400)
	r.intakeVerdict("intake: unreadable and large messages, the refused queue full, a shard refused",
		allowance{repeats: 2 * redelivered, unmarked: 2 * redelivered})
}

// TestIntakeStorm: while no scanner runs, clients publish bodies of 3 and 4 MiB, more than any task
// may have. The scanners start, refuse all, and never hold much more than in_flight_bytes.
func TestIntakeStorm(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	for _, s := range r.scanners {
		check.OK(t, s.Kill())
	}
	const bodies = 100
	var large []amqp.Publishing
	for i := range bodies {
		large = append(large, amqp.Publishing{MessageId: fmt.Sprint("large-", i), DeliveryMode: amqp.Persistent,
			Body: make([]byte, (3+i%2)<<20)})
	}
	r.publish(large)
	for _, s := range r.scanners {
		r.again(s)
	}
	r.takeRefused("large-", bodies, patience)
	r.flows("tasks of the others")
	for _, s := range r.scanners {
		const most = 64 + 60 // in_flight_bytes, and what a scanner needs without tasks
		peak := peakOf(t, s)
		t.Logf("%s had at most %d MiB", s.Log(), peak)
		if peak > most {
			t.Errorf("%s had %d MiB, want at most %d", s.Log(), peak, most)
		}
	}
	r.intakeVerdict("intake: 100 bodies of 3 and 4 MiB at a start",
		allowance{repeats: 3 * (inFlight + redelivered), unmarked: 3 * redelivered})
}

// peakOf returns the most memory that a scanner has had, in MiB.
func peakOf(t *testing.T, s *fleet.Scanner) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "status"))
	check.OK(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	_, err = fmt.Sscan(rest, &kib)
	check.OK(t, err)
	return kib >> 10
}

// unnamed publishes n messages without an ID, due at once. Each body begins with unnamedBody.
func (r *harness) unnamed(n int) {
	r.t.Helper()
	messages := make([]amqp.Publishing, n)
	for i := range messages {
		messages[i] = amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-duefleet-in": "100ms"},
			Body: fmt.Append(nil, unnamedBody, time.Now().UnixNano(), "-", i)}
	}
	r.publish(messages)
}

// eachUnnamedOnce waits until all n messages of unnamed are delivered, and fails the test if one came
// twice.
func (r *harness) eachUnnamedOnce(n int) {
	r.t.Helper()
	r.await("the messages without an ID", func() bool { return len(r.unnamedArrivals()) == n })
	for body, times := range r.unnamedArrivals() {
		if times > 1 {
			r.t.Errorf("%s came %d times", body, times)
		}
	}
}

// publish publishes messages to the intake, one after the other.
func (r *harness) publish(messages []amqp.Publishing) {
	r.t.Helper()
	r.broker(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, m := range messages {
			one, err := ch.PublishWithDeferredConfirm(intakeExchange, queue, false, false, m)
			if err != nil {
				return err
			}
			one.Wait()
		}
		return nil
	})
}

// poison publishes n messages that can't be taken in: half of them have headers that
// amqp091-go can't read, the others bodies of 3 MiB.
func (r *harness) poison(n int) {
	r.t.Helper()
	deep := any(int32(1))
	for range 33 {
		deep = []any{deep}
	}
	messages := make([]amqp.Publishing, n)
	for i := range messages {
		messages[i] = amqp.Publishing{MessageId: fmt.Sprint("bad-", i), DeliveryMode: amqp.Persistent}
		if i%2 == 0 {
			messages[i].Body = make([]byte, 3<<20)
		} else {
			messages[i].Headers = amqp.Table{"h": deep}
		}
	}
	r.publish(messages)
}

// takeRefused takes the refused messages out of their queue until each of prefix0 to prefixN-1 has
// come. It fails the test if one comes twice or has another ID.
func (r *harness) takeRefused(prefix string, n int, within time.Duration) {
	r.t.Helper()
	left, came := map[string]bool{}, map[string]int{}
	for i := range n {
		left[fmt.Sprint(prefix, i)] = true
	}
	over := time.After(within)
	r.broker(func(ch *amqp.Channel) error {
		deliveries, err := ch.Consume(refusedQueue, "", false, false, false, false, nil)
		for err == nil && len(left) > 0 {
			select {
			case d := <-deliveries:
				delete(left, d.MessageId)
				came[d.MessageId]++
				err = d.Ack(false)
			case <-over:
				return fmt.Errorf("not refused within %s: %v", within, slices.Sorted(maps.Keys(left)))
			}
		}
		return err
	})
	for id, times := range came {
		if times > 1 || !strings.HasPrefix(id, prefix) {
			r.t.Errorf("message %q was refused %d times", id, times)
		}
	}
}

// TestIntakeRabbitMQKilled: kill -9 and restart of the broker. The intake's
// queue has all that it confirmed.
func TestIntakeRabbitMQKilled(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	// This version of RabbitMQ can lose recent declarations.
	r.ctl("eval", "mnesia:dump_log().")
	check.OK(t, r.rabbitmq.Kill())
	r.lasts(4 * time.Second)
	check.OK(t, r.rabbitmq.Restart(t.Context()))
	r.flows("tasks after the broker came back")
	r.lasts(2 * time.Second)
	r.intakeVerdict("intake: RabbitMQ kill -9 and restart",
		allowance{repeats: 3*inFlight + redelivered, unmarked: redelivered})
}

// TestIntakeRedisKilled: kill -9 and restart of Redis. Messages wait in the intake's queue.
func TestIntakeRedisKilled(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	for range 2 {
		check.OK(t, r.redis.Kill())
		r.lasts(3 * time.Second)
		check.OK(t, r.redis.Restart(t.Context()))
		r.flows("tasks after Redis came back")
		r.lasts(2 * time.Second)
	}
	r.intakeVerdict("intake: Redis kill -9 and restart, twice",
		allowance{repeats: 2 * (3*inFlight + redelivered), unmarked: 2 * redelivered})
}

// TestIntakeRedisFull: Redis is at maxmemory for a minute. Publishers get their confirms
// all the same, and a scanner's log says why messages wait.
func TestIntakeRedisFull(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	r.lasts(time.Minute)
	if q, err := r.inspect(intakeQueue); err != nil || q.Messages < 1000*loadBatch {
		t.Errorf("%d messages wait, %v", q.Messages, err)
	}
	if log := r.logs(); !strings.Contains(log, "messages of the intake wait") ||
		!strings.Contains(log, "Redis is out of memory") {
		t.Error("no log says why messages wait")
	}
	if n := r.load.failed.Load(); n > 0 {
		t.Errorf("%d publishes failed, the last with %v", n, r.load.last.Load())
	}
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	r.flows("tasks once there is room")
	r.intakeVerdict("intake: Redis at maxmemory for a minute", allowance{repeats: redelivered, unmarked: redelivered})
}

// TestIntakeWhileShardsChange: M changes twice under load.
func TestIntakeWhileShardsChange(t *testing.T) {
	r := newHarness(t, options{intake: true})
	r.beginIntake()
	for _, shards := range []int{13, 3} {
		r.settings.Topics["orders"] = r.settings.Topics["orders"].With(fleet.Topic{"shards": shards})
		check.OK(t, fleet.WriteConfig(r.config, r.settings.Document()))
		r.await("the change to end", func() bool {
			s := r.status().Topic("orders")
			return s.Shards == shards && s.Phase == "stable"
		})
		r.lasts(time.Second)
	}
	r.intakeVerdict("intake: M 4 -> 13 -> 3", allowance{})
}
