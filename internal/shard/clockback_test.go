package shard

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// dueLater gives the record of a task of shard 0 another due time, as if Redis's clock
// had been set back since it was claimed.
func (c *sandbox) dueLater(id string, in time.Duration) (due int64) {
	c.t.Helper()
	due = c.now() + in.Milliseconds()
	record := []byte(c.read(id).raw)
	copy(record[1:7], binary.BigEndian.AppendUint64(nil, uint64(due))[2:])
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), id, record).Err())
	return due
}

// TestAClaimIsReleasedAsOneThoughItIsNotDueAnyMore: its attempt counts, and what says that
// the broker may have it stays.
func TestAClaimIsReleasedAsOneThoughItIsNotDueAnyMore(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"as soon as may be": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			c.put(task.Now(), "a")
			l := leases(c.claimIDs("a"))[0]
			due := c.dueLater("a", time.Hour)
			check.Equal(t, "released", c.release(Release{Lease: l, Delay: delay, Attempted: true, Redelivered: true,
				Reason: "confirm lost"}), 1)
			s := c.in("a", task.Waiting)
			check.Equal(t, "attempt", s.Attempt, 2)
			check.Equal(t, "redelivered", s.Redelivered, true)
			check.Equal(t, "reason", s.Reason, "confirm lost")
			check.Equal(t, "not before it is due", s.Next.UnixMilli(), due)
		})
	}
}

func TestAClaimIsParkedThoughItIsNotDueAnyMore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	l := leases(c.claimIDs("a"))[0]
	c.dueLater("a", time.Hour)
	check.Equal(t, "parked", c.release(Release{Lease: l, Park: true, Attempted: true, Reason: "NO_ROUTE"}), 1)
	s := c.in("a", task.Parked)
	check.Equal(t, "reason", s.Reason, "NO_ROUTE")
	check.Equal(t, "attempt", s.Attempt, 2)
}

// A lease that ran out after Redis's clock was set back: the broker may have the message.
func TestALapsedClaimThatIsNotDueAnyMoreIsMarked(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	c.sameIDs(c.claimFor(30*time.Millisecond), "a")
	due := c.dueLater("a", time.Hour)
	check.Until(t, "the lease lapses", func() bool {
		c.claimIDs()
		return c.read("a").State == task.Waiting
	})
	check.Equal(t, "next", c.read("a").Next.UnixMilli(), due)
	check.Equal(t, "redelivered", c.read("a").Redelivered, true)
}
