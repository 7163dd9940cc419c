//go:build chaos

package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	largePayload = 4 << 20
	// redisSlack is how much memory, besides the tasks, Redis may use for a change of M.
	redisSlack = 64 << 20
)

// TestLargeTasksMoveOverANarrowNetwork: the shard count changes with 200 stored tasks of
// 4 MiB, while all scanners share 1 MB/s. The change ends, and memory stays bounded.
func TestLargeTasksMoveOverANarrowNetwork(t *testing.T) {
	const many = 200
	r := newHarness(t, options{consul: true, badRedis: true, redisArgs: []string{"--appendonly", "no"},
		topic: fleet.Topic{"shards": 2}})
	r.takesLarge()
	keys := r.scheduleLarge(many, time.Now().Add(2*time.Hour))
	for _, stream := range []string{"upstream", "downstream"} {
		r.toRedis.spoil("narrow "+stream, "narrow", stream, map[string]any{"rate": 1_000_000})
	}
	r.changeShards(4, 30*time.Minute)
	r.toRedis.fix()
	r.checkMemory()
	for _, k := range keys {
		check.OK(t, r.recorder.Reschedule(t.Context(), k, time.Now().Add(time.Second).Truncate(time.Millisecond)))
	}
	r.begin()
	r.verdict("Redis: 1 MB/s, 200 tasks of 4 MiB, M 2 -> 4", allowance{})
}

// TestLargeParkedTasksMove: the shard count changes with 500 parked tasks of 4 MiB. The
// change ends, parked ls lists the tasks, and memory stays bounded.
func TestLargeParkedTasksMove(t *testing.T) {
	const many = 500
	r := newHarness(t, options{
		consul: true, exchange: true, redisArgs: []string{"--appendonly", "no"},
		topic: fleet.Topic{"shards": 2, "max_attempts": 1, "lease": "30s"},
	})
	r.takesLarge()
	r.broker(func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, "orders.due", "orders", nil) })
	r.scheduleLarge(many, time.Now().Add(time.Minute))
	r.within(10*time.Minute, "all to be parked", func() bool { return r.status().Topic("orders").Parked == many })
	r.checkMemory()
	r.changeShards(4, 10*time.Minute)
	listed := r.run(programs.Scanner, "parked", "ls", "--topic", "orders", "-o", "json")
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(listed.Stdout), &list); err != nil || len(list) != many {
		t.Errorf("parked ls: %d tasks, want %d: %v %s", len(list), many, err, listed.Stderr)
	}
	r.checkMemory()
	r.bind()
	began := time.Now()
	out := r.runWithin(10*time.Minute, programs.Scanner, "parked", "replay", "--topic", "orders", "--all", "--yes")
	if out.Code != 0 {
		t.Fatal(out.Stderr)
	}
	t.Logf("the replay took %v", time.Since(began).Round(time.Second))
	r.begin()
	r.verdict("500 parked tasks of 4 MiB, M 2 -> 4", allowance{})
}

// takesLarge replaces the harness's producer with one that accepts large payloads.
func (r *harness) takesLarge() {
	r.t.Helper()
	client, err := producer.New(producer.Config{Redis: r.client, MaxPayload: largePayload})
	check.OK(r.t, err)
	r.recorder.Client = client
}

// scheduleLarge stores tasks with payloads of 4 MiB.
func (r *harness) scheduleLarge(many int, due time.Time) (keys []fleet.Key) {
	r.t.Helper()
	for i := range many {
		o := order("orders", fmt.Sprintf("large-%d", i), due)
		o.Payload = bytes.Repeat([]byte{byte(i)}, largePayload)
		check.OK(r.t, r.recorder.Schedule(r.t.Context(), o))
		keys = append(keys, fleet.Key{Topic: o.Topic, ID: o.ID})
	}
	return keys
}

// changeShards changes the shard count, waits for the end of the change, and checks that
// Redis uses little memory for it.
func (r *harness) changeShards(shards int, within time.Duration) {
	r.t.Helper()
	before, began := r.redisMemory(), time.Now()
	var most atomic.Int64
	var sampling sync.WaitGroup
	over := make(chan struct{})
	sampling.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				most.Store(max(most.Load(), r.redisMemory()))
			}
		}
	})
	r.set("orders", fleet.Topic{"shards": shards})
	r.within(within, "the change of M to end", func() bool {
		s := r.status().Topic("orders")
		return s.Shards == shards && s.Phase == "stable"
	})
	close(over)
	sampling.Wait()
	extra := most.Load() - before
	r.t.Logf("the change to %d shards took %s; Redis held %d MiB before, and at most %d MiB more meanwhile",
		shards, time.Since(began).Round(time.Second), before>>20, extra>>20)
	if extra > redisSlack {
		r.t.Errorf("Redis took %d MiB for the change, want at most %d", extra>>20, redisSlack>>20)
	}
}

// redisMemory returns how many bytes Redis uses now.
func (r *harness) redisMemory() int64 {
	info, err := r.client.Info(r.t.Context(), "memory").Result()
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	value, _, _ := strings.Cut(rest, "\r\n")
	bytes, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		r.t.Errorf("used_memory is %q", value)
	}
	return bytes
}
