package e2e_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

// arrivals counts messages in the order in which they arrive.
type arrivals struct {
	mu          sync.Mutex
	flood, calm int
	before      int       // calm messages that had arrived when the last of the flood did
	last        time.Time // when that was
}

func (a *arrivals) add(d fleet.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(d.MessageId, "calm-") {
		a.calm++
		return
	}
	a.flood++
	a.before, a.last = a.calm, d.At
}

// TestAFloodedTopicDelaysNoOther: one topic has thousands of tasks due at one instant. Meanwhile
// another topic's tasks fall due one after the other. They arrive between the flood's, once each.
func TestAFloodedTopicDelaysNoOther(t *testing.T) {
	t.Parallel()
	const flood, calm, apart, size = 20_000, 100, 100 * time.Millisecond, 2000
	w := newFixture(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", nil), "invoices": fleet.DeclaredTopic("invoices", nil),
	})
	var seen arrivals
	w.tap = seen.add
	w.pause(true)
	w.start(2)
	w.consume("orders.due", "invoices.due")
	w.schedule(orders("orders", "flood", flood, time.Now(), 0, size)...)
	begin := time.Now().Add(time.Second)
	tasks := orders("invoices", "calm", calm, begin, calm*apart, 0)
	w.schedule(tasks...)
	w.pause(false)
	if err := w.finish().Err(); err != nil {
		t.Error(err)
	}
	due := 0 // how many of the other topic's tasks were due before the flood was over
	for _, o := range tasks {
		if o.Due.Before(seen.last) {
			due++
		}
	}
	t.Logf("%d of %d tasks were due during the flood, and %d arrived", due, calm, seen.before)
	if seen.flood < flood || due < 3 || seen.before < due/2 {
		t.Errorf("the flood had %d messages; %d others were due before its last, and %d had arrived", seen.flood, due,
			seen.before)
	}
}
