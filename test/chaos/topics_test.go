//go:build chaos

package chaos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/producer"
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

// TestTroubleStaysInItsTopic: of 200 topics one has a broken document, one no exchange, and one a
// full queue. Status names these three and no other, also after Consul was away. The tasks of all
// others are delivered meanwhile.
func TestTroubleStaysInItsTopic(t *testing.T) {
	const broken, unrouted, full = "more-001", "more-002", "more-003"
	trouble := []string{broken, unrouted, full}
	more := map[string]fleet.Topic{}
	for i := range 199 {
		more[fmt.Sprintf("more-%03d", i)] = nil
	}
	r := newHarness(t, options{consul: true, more: more})
	r.begin()
	r.await("a healthy fleet", func() bool { return len(r.troubled()) == 0 })
	key := "duefleet/topics/" + broken
	whole, _, err := r.kv().Get(key, nil)
	check.OK(t, err)
	_, err = r.kv().Put(&consul.KVPair{Key: key, Value: []byte("shards: [")}, nil)
	check.OK(t, err)
	r.set(unrouted, fleet.Topic{"exchange": "missing", "declare": ""})
	r.ctl("set_policy", "full", "^"+full, `{"max-length":1,"overflow":"reject-publish"}`, "--apply-to", "queues")
	var tasks []producer.Request
	for name := range more {
		for i := range 2 {
			var task producer.Request
			task.Topic, task.ID, task.When = name, fmt.Sprint("o-", i), producer.In(time.Second)
			tasks = append(tasks, task)
		}
	}
	for _, result := range r.recorder.Client.ScheduleMany(t.Context(), tasks) {
		check.OK(t, result.Err)
	}
	waiting := func() (topics []string) {
		for _, s := range r.status().Topics {
			if s.Topic != "orders" && s.Pending > 0 {
				topics = append(topics, s.Topic)
			}
		}
		return slices.Sorted(slices.Values(topics))
	}
	r.await("the three topics in status", func() bool { return slices.Equal(r.troubled(), trouble) })
	r.await("the tasks of all others", func() bool { return slices.Equal(waiting(), trouble[1:]) })
	check.OK(t, r.consul.Kill())
	r.await("Consul to be missed", func() bool { return slices.Equal(r.troubled(), append([]string{""}, trouble...)) })
	check.OK(t, r.consul.Restart(t.Context()))
	r.await("Consul to be back", func() bool { return slices.Equal(r.troubled(), trouble) })

	_, err = r.kv().Put(&consul.KVPair{Key: key, Value: whole.Value}, nil)
	check.OK(t, err)
	r.set(unrouted, fleet.DeclaredTopic(unrouted, nil))
	r.ctl("clear_policy", "full")
	r.await("a healthy fleet", func() bool { return len(r.troubled()) == 0 && len(waiting()) == 0 })
	r.verdict("three of 200 topics in trouble, Consul restarted", allowance{})
}
