package producer

import (
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// late ends the test unless Redis refused a delayed script.
func late(t *testing.T, answer string) {
	t.Helper()
	if !strings.Contains(answer, "late") {
		t.Fatalf("the delayed script was answered %q", answer)
	}
}

func TestACancelThatArrivesLateRemovesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	p, c := f.behind()
	_, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	release := p.hold()
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "a"))
	_, err = c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	late(t, release())
	f.inPlace(map[string]bool{"a": true})
}

func TestASchedulingThatArrivesLateDoesNotBringBackWhatWasCancelled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	p, c := f.behind()
	release := p.hold()
	_, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "a"))
	late(t, release())
	_, err = c.Get(f.t.Context(), orders, "a")
	is(t, err, task.ErrNotFound)
	f.inPlace(nil)
}

func TestASchedulingThatArrivesLateDoesNotReplaceTheNewer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	p, c := f.behind()
	release := p.hold()
	_, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	newer := Request{Topic: orders, ID: "a", When: In(2 * time.Hour), Payload: []byte("newer")}
	due, err := c.Schedule(f.t.Context(), newer)
	check.OK(f.t, err)
	late(t, release())
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "payload", string(s.Payload), "newer")
	check.Equal(t, "due", s.Due, due)
}

func TestASchedulingWhoseReplyIsLostSucceedsAndStoresTheTaskOnce(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"replacing": false, "if absent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 4)
			p, c := f.behind()
			r := request("nothing", In(time.Hour))
			r.IfAbsent = absent
			p.loseReply()
			due, err := c.Schedule(f.t.Context(), r)
			check.OK(f.t, err)
			s, err := c.Get(f.t.Context(), orders, r.ID)
			check.OK(f.t, err)
			check.Equal(t, "due", s.Due, due)
			check.Equal(t, "the reply was lost", p.lost(), true)
			f.inPlace(map[string]bool{r.ID: true})
		})
	}
}

func TestACancelWhoseReplyIsLostLeavesNoTask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	p, c := f.behind()
	_, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	p.loseReply()
	err = c.Cancel(f.t.Context(), orders, "a")
	is(t, err, task.ErrNotFound)
	is(t, err, ErrRepeated) // its first execution removed it
	f.inPlace(nil)
}

// TestATaskDeliveredWhileTheReplyIsLostIsStoredAgain checks a statement in
// docs/guarantees.md about a Schedule whose reply was lost. The second copy has another
// due time, because the requested time was past.
func TestATaskDeliveredWhileTheReplyIsLostIsStoredAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	p, c := f.behind()
	asked := time.UnixMilli(f.now() + 500).UTC()
	letThrough := p.shutOut()
	p.loseReply()
	answered := make(chan time.Time, 1)
	go func() {
		due, err := c.Schedule(f.t.Context(), request("a", At(asked)))
		if err != nil {
			t.Error(err)
		}
		answered <- due
	}()
	var first []shard.Claimed
	check.Until(t, "the task is claimed", func() bool {
		first = f.claimAll()
		return len(first) > 0
	})
	check.Equal(t, "tasks claimed", len(first), 1)
	before := asked
	if first[0].Scheduled.After(asked) { // a past time means now
		before = first[0].Scheduled
	}
	check.Equal(t, "due", first[0].Due.UnixMilli(), before.UnixMilli())
	_, err := f.Shard(0).Settle(f.t.Context(), []shard.Lease{{ID: "a", Token: first[0].Token}})
	check.OK(f.t, err)
	letThrough()
	due := check.Receive(t, "the answer to the call", answered)
	check.Equal(t, "the reply was lost", p.lost(), true)
	if !due.After(before) {
		t.Errorf("answered the due time %s, want one after %s, which was over", due, before)
	}
	f.inPlace(map[string]bool{"a": true})
}
