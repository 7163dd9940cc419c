//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// troubled returns the topics with a problem, in order; "" stands for the whole fleet.
func (r *harness) troubled() []string {
	r.t.Helper()
	out := r.run(programs.Scanner, "status", "-o", "json")
	var s struct {
		Problems []problem.Problem `json:"problems"`
	}
	check.OK(r.t, json.Unmarshal([]byte(out.Stdout), &s))
	topics := map[string]bool{}
	for _, p := range s.Problems {
		topics[p.Topic] = true
	}
	return slices.Sorted(maps.Keys(topics))
}

// promptly is how late a task may be while other topics are in trouble: two ticks and a second for
// a busy machine. A neighbour that waits for a lease or for a lost wake-up takes longer.
const promptly = 3 * time.Second

// TestTroubleStaysInItsTopic: of 200 topics one has a broken document, one no exchange, and one a
// full queue. Status names these three and no other, also after Consul was away. Each topic gets a
// task every second. All tasks arrive once, and on time unless their topic has no exchange or a
// full queue. A broken document leaves the last settings in force.
func TestTroubleStaysInItsTopic(t *testing.T) {
	const broken, unrouted, full = "more-001", "more-002", "more-003"
	trouble, neighbours := []string{broken, unrouted, full}, []string{}
	tireless := fleet.Topic{"max_attempts": 1000, "backoff": map[string]any{"min": "100ms", "max": "1s"}}
	more := map[string]fleet.Topic{}
	for i := range 199 {
		more[fmt.Sprintf("more-%03d", i)] = nil
	}
	more[unrouted], more[full] = tireless, tireless
	all := slices.Sorted(maps.Keys(more))
	for _, name := range all {
		if name != unrouted && name != full {
			neighbours = append(neighbours, name)
		}
	}
	r := newHarness(t, options{consul: true, more: more})
	r.begin()
	r.await("a healthy fleet", func() bool { return len(r.troubled()) == 0 })
	r.consumeOf(append(neighbours, unrouted))
	beside := &load{calls: r.recorder, later: 20 * time.Second, topics: all, size: 10, spread: true}
	r.startLoad(beside)
	r.eachDelivers("before any trouble", neighbours)

	heal := r.afflict(broken, unrouted, full)
	r.await("the three topics in status", func() bool { return slices.Equal(r.troubled(), trouble) })
	r.eachDelivers("with three topics in trouble", neighbours)
	check.OK(t, r.consul.Kill())
	r.await("Consul to be missed", func() bool { return slices.Equal(r.troubled(), append([]string{""}, trouble...)) })
	r.eachDelivers("while Consul is away", neighbours)
	check.OK(t, r.consul.Restart(t.Context()))
	r.await("Consul to be back", func() bool { return slices.Equal(r.troubled(), trouble) })
	r.eachDelivers("once Consul is back", neighbours)
	r.await("tasks that wait for an exchange and for room", func() bool {
		s := r.status()
		return s.Topic(unrouted).Pending > 10 && s.Topic(full).Pending > 10
	})

	heal()
	r.consumeOf([]string{full})
	r.await("a healthy fleet", func() bool { return len(r.troubled()) == 0 })
	r.eachDelivers("after the trouble", all)
	beside.stop()
	r.verdict("three of 200 topics in trouble, Consul restarted", allowance{})
	if n := beside.failed.Load(); n > 0 {
		t.Errorf("%d calls for the 199 topics failed, the last with %v", n, beside.last.Load())
	}
	r.prompt(neighbours)
}

// afflict breaks the document of one topic, removes another's exchange and fills a third one's
// queue. heal ends that.
func (r *harness) afflict(broken, unrouted, full string) (heal func()) {
	r.t.Helper()
	key := "duefleet/topics/" + broken
	whole, _, err := r.kv().Get(key, nil)
	check.OK(r.t, err)
	_, err = r.kv().Put(&consul.KVPair{Key: key, Value: []byte("shards: [")}, nil)
	check.OK(r.t, err)
	r.set(unrouted, fleet.Topic{"exchange": "missing", "declare": ""})
	// In one step, RabbitMQ would drop messages that the queue has already.
	for _, policy := range []string{`{"overflow":"reject-publish"}`, `{"max-length":1,"overflow":"reject-publish"}`} {
		r.ctl("set_policy", "full", "^"+full, policy, "--apply-to", "queues")
	}
	return func() {
		r.t.Helper()
		_, err := r.kv().Put(&consul.KVPair{Key: key, Value: whole.Value}, nil)
		check.OK(r.t, err)
		r.set(unrouted, fleet.DeclaredTopic(unrouted, nil))
		r.ctl("clear_policy", "full")
	}
}

// consumeOf enters the messages of topics into the ledger, over one connection. The broker must not
// end meanwhile.
func (r *harness) consumeOf(topics []string) {
	r.t.Helper()
	conn, err := amqp.Dial(r.urls[0])
	check.OK(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	check.OK(r.t, err)
	for _, name := range topics {
		messages, err := ch.ConsumeWithContext(r.t.Context(), name+".due", "", true, false, false, false, nil)
		check.OK(r.t, err)
		go func() {
			for m := range messages {
				r.arrived(fleet.Delivery{Delivery: m, At: time.Now(), Queue: name + ".due"})
			}
		}()
	}
}

// eachDelivers waits until each topic has delivered a task that was due after this call.
func (r *harness) eachDelivers(when string, topics []string) {
	r.t.Helper()
	began := r.clock.now().UnixMilli()
	var silent []string
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	err := fleet.Await(ctx, func() bool {
		silent = r.arrivals.without(topics, began)
		return len(silent) == 0
	})
	if err != nil {
		r.t.Fatalf("%s, %d topics delivered nothing for %s: %v", when, len(silent), patience, silent)
	}
	r.t.Logf("%s, each of %d topics delivered a task within %s", when, len(topics),
		time.Duration(r.clock.now().UnixMilli()-began)*time.Millisecond)
}

// without returns the topics that have delivered no task due at or after some time, in ms.
func (a *arrivals) without(topics []string, since int64) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(topics), func(name string) bool { return a.latest[name] >= since })
}

// prompt fails the test if a task of one of the topics came too late.
func (r *harness) prompt(topics []string) {
	r.t.Helper()
	tasks, worst := 0, time.Duration(0)
	var late []string
	for _, name := range topics {
		all := r.arrivals.since(name, 0)
		tasks, worst = tasks+len(all), max(worst, all.At(1))
		if all.At(1) > promptly {
			late = append(late, name)
		}
	}
	r.t.Logf("%d topics got %d tasks, the latest %s late", len(topics), tasks, worst)
	if len(late) > 0 {
		r.t.Errorf("a task came %s late, want at most %s; topics with late tasks: %v", worst, promptly, late)
	}
}
