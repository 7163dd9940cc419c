package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// full is a removed topic with a waiting, a leased and a parked task.
func full(t *testing.T) *sandbox {
	t.Helper()
	c := newSandbox(t, 1)
	c.put(task.Now(), "parked")
	c.park("parked", "no queue")
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	c.put(task.In(time.Hour), "waiting")
	c.remove()
	return c
}

// remove removes the sandbox's topic, whose placement then has the phase removed.
func (c *sandbox) remove() {
	c.t.Helper()
	done, err := c.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(c.t, "removed", done, true)
	c.p = c.p.Gone()
}

func TestClearLeavesTasksAloneUnlessTheyArePurged(t *testing.T) {
	t.Parallel()
	c := full(t)
	went, left, err := c.Clear(c.t.Context(), c.p, false)
	check.OK(c.t, err)
	check.Equal(t, "tasks that went", went, 0)
	check.Equal(t, "tasks left", left, 3)
	for _, id := range []string{"parked", "leased", "waiting"} {
		c.read(id)
	}
	went, left, err = c.Clear(c.t.Context(), c.p, true)
	check.OK(c.t, err)
	check.Equal(t, "tasks that went", went, 3)
	check.Equal(t, "tasks left", left, 0)
	for _, id := range []string{"parked", "leased", "waiting"} {
		c.gone(id)
	}
	went, left, err = c.Clear(c.t.Context(), c.p, true)
	check.OK(c.t, err)
	check.Equal(t, "tasks that went the second time", went+left, 0)
}

func TestClearLeavesATopicAloneThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.remove()
	gone := c.p
	var err error
	c.p, err = c.Ensure(c.t.Context(), 2)
	check.OK(c.t, err)
	c.put(task.In(time.Hour), "a")
	for _, purge := range []bool{false, true} {
		var moved *MovedError
		if _, _, err := c.Clear(c.t.Context(), gone, purge); !errors.As(err, &moved) || moved.Placement != c.p {
			t.Errorf("purge %t: got %v", purge, err)
		}
		c.read("a")
	}
}

func TestClearOfATopicThatIsNotRemovedIsRefused(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "a")
	if _, _, err := c.Clear(c.t.Context(), c.p, true); err == nil {
		t.Error("a topic that is served was cleared")
	}
	c.read("a")
}
