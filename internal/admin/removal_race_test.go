package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// ordersAt returns topic orders with its own client.
func ordersAt(t *testing.T, addr, prefix string) (*shard.Topic, redis.UniversalClient) {
	t.Helper()
	r := fixture.At(t, addr, prefix)
	return r.Orders(), r.Client
}

// TestARemovalTakesNoTaskThatItMayNot: a producer stores a task before each request of a
// removal in turn. The task stays if the removal purges nothing. It also stays if it is
// stored in the topic after that was created again, and then the topic stays known.
func TestARemovalTakesNoTaskThatItMayNot(t *testing.T) {
	t.Parallel()
	for _, purge := range []bool{false, true} {
		t.Run(fmt.Sprintf("purge %t", purge), func(t *testing.T) {
			t.Parallel()
			requests := 0
			for removeAmid(t, requests, purge) {
				requests++
			}
			if requests < 5 {
				t.Errorf("a removal took %d requests: that is none", requests)
			}
		})
	}
}

// removeAmid removes a topic. A scanner and a producer create it again before the removal's
// request at. It reports whether there was such a request.
func removeAmid(t *testing.T, at int, purge bool) bool {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	topic, _ := ordersAt(t, addr, prefix)
	producer := router.New(topic.Store()).Topic("orders")
	_, err := topic.Ensure(t.Context(), 2)
	check.OK(t, err)
	var anew bool
	intrude := func() {
		p, _ := topic.Placement(t.Context())
		anew = p.Phase == shard.Removed
		_, made := topic.Ensure(t.Context(), 2)
		_, stored := producer.ScheduleOne(t.Context(), shard.Entry{ID: "a", When: task.In(time.Hour), Body: []byte{0}})
		saved := topic.Store().Registry().SaveDocument(t.Context(), topic.Name(), []byte("shards: 2"))
		if err := errors.Join(made, stored, saved); err != nil {
			t.Error(err)
		}
	}
	own, removing := ordersAt(t, addr, prefix)
	amid := faults.NewSteps(removing, at, intrude)
	went, err := Removal{Topic: own, Purge: purge}.Run(t.Context())
	if !amid.Reached() {
		return false
	}
	if purge && !anew {
		return true // it may take all that was stored before it
	}
	what := fmt.Sprintf("before request %d (made anew: %t; the removal: %d went, %v)", at, anew, went, err)
	if _, err := producer.Get(t.Context(), "a"); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	names, err := topic.Store().Registry().Topics(t.Context())
	if err != nil || strings.Join(names, " ") != "orders" {
		t.Errorf("%s: known topics %q, %v", what, names, err)
	}
	if doc, err := topic.Store().Registry().Document(t.Context(), topic.Name()); err != nil || string(doc) != "shards: 2" {
		t.Errorf("%s: document %q, %v", what, doc, err)
	}
	return true
}
