//go:build measure

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestMeasureMoreTopicsThanChannels: one scanner has more topics that are awake than a connection to
// RabbitMQ has channels. A task of each is delivered in time.
func TestMeasureMoreTopicsThanChannels(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const topics = 2200 // a connection has 2,047 channels
	shared := fleet.DeclaredTopic("orders", nil)
	all := map[string]fleet.Topic{}
	for i := range topics {
		all[fmt.Sprintf("topic-%04d", i)] = shared
	}
	w := newFixture(t, all)
	w.start(1)
	w.consume("orders.due")
	due := time.Now().Add(15 * time.Second)
	var tasks []fleet.Order
	for name := range all {
		tasks = append(tasks, orders(name, "o", 1, due, time.Second, 0)...)
	}
	w.schedule(tasks...)
	check.Until(t, "a task of each topic", rarely(func() bool { return w.recorder.Ledger.Missing() == 0 }))
	took := time.Since(due)
	t.Logf("the last of %d topics' tasks came within %.1f s", topics, took.Seconds())
	if took > 10*time.Second {
		t.Errorf("the last task came %s late, want at most 10 s", took)
	}
}
