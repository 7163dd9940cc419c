package intake

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestATroubleLastsOverHandOvers: a shard fails, so scanners hand the queue over. The trouble isn't
// gone when the messages come again. It is gone after a batch that is carried out whole, and the
// log says so once.
func TestATroubleLastsOverHandOvers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver = time.Nanosecond
	var again, well atomic.Int32
	h.pace.arrived = func() {
		if strings.Contains(h.log.String(), "intake stands still") {
			again.Add(1)
			if h.in.Trouble() == "" {
				well.Add(1)
			}
		}
	}
	broken := fmt.Sprintf("%s:task:{orders:%d}", h.redis.Prefix, h.placement.New("stuck"))
	check.OK(t, h.redis.Client.Set(t.Context(), broken, "no hash", 0).Err())
	h.publish(newMessage("stuck", HeaderIn, "1h"))
	h.start()
	check.Until(t, "several hand-overs", func() bool { return again.Load() > 4 })
	if n := well.Load(); n > 0 {
		t.Errorf("the intake was well at %d of %d deliveries of a message that fails", n, again.Load())
	}
	check.OK(t, h.redis.Client.Del(t.Context(), broken).Err())
	h.settled()
	check.Until(t, "the trouble to be over", func() bool { return h.in.Trouble() == "" })
	for _, line := range []string{"intake stands still", "intake takes messages"} {
		check.Equal(t, line, len(h.log.Lines(line)), 1)
	}
}

// TestATroubleIsOverWithoutMessages: another scanner has carried out what failed here.
func TestATroubleIsOverWithoutMessages(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.handOver, h.pace.quiet = time.Nanosecond, time.Second
	broken := fmt.Sprintf("%s:task:{orders:%d}", h.redis.Prefix, h.placement.New("stuck"))
	check.OK(t, h.redis.Client.Set(t.Context(), broken, "no hash", 0).Err())
	h.publish(newMessage("stuck", HeaderIn, "1h"))
	h.start()
	first := h.in
	check.Until(t, "the first scanner to be in trouble", func() bool { return first.Trouble() != "" })
	h.start()
	check.Until(t, "the other one, too", func() bool { return h.in.Trouble() != "" })
	check.OK(t, h.redis.Client.Del(t.Context(), broken).Err())
	check.Until(t, "the trouble of both to be over", func() bool { return first.Trouble() == "" && h.in.Trouble() == "" })
	check.Equal(t, "tasks", len(h.records()), 1)
}
