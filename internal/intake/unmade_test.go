package intake

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestATopicThatIsNotMadeYetIsNoTrouble: scanners of a new fleet begin the intake while one
// of them makes the topic. A topic that stays unknown is trouble.
func TestATopicThatIsNotMadeYetIsNoTrouble(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redis = fixture.New(t) // with another prefix, where no topic is
	var asked atomic.Int32
	h.redis.Store = h.breakable(func(faults.Request) bool {
		asked.Add(1)
		return false
	})
	h.start()
	check.Until(t, "the intake to look for the topic twice", func() bool { return asked.Load() > 1 })
	if why := h.in.Trouble(); why != "" {
		t.Errorf("trouble: %s", why)
	}
	h.redis.Serve(t, 4)
	h.publish(newMessage("a", HeaderIn, "1h"))
	h.settled()
	if text := h.log.String(); strings.Contains(text, "stands still") || len(h.records()) != 1 {
		t.Errorf("%d tasks, log:\n%s", len(h.records()), text)
	}
	h.redis, h.pace.unmade = fixture.New(t), time.Millisecond
	h.start()
	check.Until(t, "the intake to say that the topic is unknown", func() bool {
		return strings.Contains(h.in.Trouble(), "unknown topic") && strings.Contains(h.log.String(), "stands still")
	})
}
