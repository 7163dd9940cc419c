package producer

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// grouped is a request in a group.
func grouped(group, id string) Request {
	r := request(id, In(time.Hour))
	r.Group = group
	return r
}

// group returns the IDs of a group's tasks, sorted.
func (f *fleet) group(c *Client, name string) string {
	f.t.Helper()
	var ids []string
	for s, err := range c.ListGroup(f.t.Context(), orders, name) {
		check.OK(f.t, err)
		check.Equal(f.t, "group of "+s.ID, s.Group, name)
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// members counts what the index of groups holds.
func (f *fleet) members() (n int) {
	f.t.Helper()
	for _, part := range f.Index() {
		for {
			page, err := part.Next(f.t.Context(), 500)
			check.OK(f.t, err)
			if len(page) == 0 {
				break
			}
			n += len(page)
		}
	}
	return n
}

// TestAGroupIsListedMovedAndCancelled: all kinds of tasks, in all states, and no others.
func TestAGroupIsListedMovedAndCancelled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	recurring := grouped("k", "recurring")
	recurring.When, recurring.Recurrence = When{}, Every(time.Hour)
	carried := grouped("k", "carried")
	carried.AMQP = &task.AMQP{RoutingKey: "r", Headers: map[string]any{"h": "v"}}
	leased := grouped("k", "leased")
	leased.When = Now()
	later := grouped("k", "k\x00later")
	for _, r := range []Request{
		recurring, carried, leased, later, grouped("kk", "other"), grouped("", "alone"), grouped("k\x00", "nul"),
	} {
		_, err := c.Schedule(f.t.Context(), r)
		check.OK(f.t, err)
	}
	check.Equal(t, "claimed", len(f.claimAll()), 1)
	check.Equal(t, "group", f.group(c, "k"), "carried k\x00later leased recurring")
	check.Equal(t, "another group", f.group(c, "kk"), "other")
	check.Equal(t, "a group that nobody is in", f.group(c, "kkk"), "")

	stored, err := c.Get(f.t.Context(), orders, "carried")
	check.OK(f.t, err)
	check.Equal(t, "message", stored.AMQP.Headers["h"], any("v"))
	stored, err = c.Get(f.t.Context(), orders, "recurring")
	check.OK(f.t, err)
	check.Equal(t, "rule", stored.Recurrence.Every, time.Hour)

	to := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond)
	n, err := c.RescheduleGroup(f.t.Context(), orders, "k", At(to))
	check.OK(f.t, err)
	check.Equal(t, "moved, but for the leased one", n, 3)
	for s, err := range c.List(f.t.Context(), orders, Filter{Group: "k", State: task.Waiting, WithoutPayload: true}) {
		check.OK(f.t, err)
		check.Equal(t, "due of "+s.ID, s.Due.UnixMilli(), to.UnixMilli())
		check.Equal(t, "payload of "+s.ID, len(s.Payload), 0)
	}
	if planned := f.mustGet(c, "recurring").Recurrence.Planned; planned.IsZero() {
		t.Error("the moved run has no planned time")
	}
	shifted, err := c.ShiftMatching(f.t.Context(), Matching{Topic: orders, Group: "k", Prefix: "c"}, time.Hour)
	check.OK(f.t, err)
	check.Equal(t, "shifted", shifted.Changed, 1)

	n, err = c.CancelGroup(f.t.Context(), orders, "k")
	check.OK(f.t, err)
	check.Equal(t, "cancelled", n, 4)
	f.inPlace(map[string]bool{"other": true, "alone": true, "nul": true})
	check.Equal(t, "left of the index", f.members(), 2)
	n, err = c.CancelGroup(f.t.Context(), orders, "k")
	check.OK(f.t, err)
	check.Equal(t, "cancelled again", n, 0)
}

func (f *fleet) mustGet(c *Client, id string) Stored {
	f.t.Helper()
	s, err := c.Get(f.t.Context(), orders, id)
	check.OK(f.t, err)
	return s
}

// TestATaskLeavesItsGroup when it is replaced, cancelled, delivered or refused. The index then
// holds the stored versions alone.
func TestATaskLeavesItsGroup(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	schedule := func(r Request) {
		t.Helper()
		_, err := c.Schedule(f.t.Context(), r)
		check.OK(f.t, err)
	}
	schedule(grouped("a", "x"))
	schedule(grouped("a", "x"))
	check.Equal(t, "scheduled twice", f.members(), 1)
	schedule(grouped("b", "x"))
	check.Equal(t, "members", f.members(), 1)
	check.Equal(t, "the old group", f.group(c, "a"), "")
	check.Equal(t, "the new group", f.group(c, "b"), "x")
	refused := grouped("a", "x")
	refused.IfAbsent = true
	_, err := c.Schedule(f.t.Context(), refused)
	is(t, err, task.ErrExists)
	refused = grouped("a", "none")
	refused.IfPresent = true
	_, err = c.Schedule(f.t.Context(), refused)
	is(t, err, task.ErrNotFound)
	check.Equal(t, "after two refusals", f.members(), 1)
	schedule(grouped("", "x"))
	check.Equal(t, "in no group any more", f.members(), 0)

	schedule(grouped("a", "x"))
	_, err = c.Reschedule(f.t.Context(), orders, "x", In(2*time.Hour))
	check.OK(f.t, err)
	check.Equal(t, "moved", f.group(c, "a"), "x")
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "x"))
	check.Equal(t, "cancelled", f.members(), 0)

	due := grouped("a", "x")
	due.When = Now()
	schedule(due)
	for _, claimed := range f.claimAll() {
		check.Equal(t, "group of a delivery", claimed.Group, "a")
		n, err := f.Shard(claimed.Shard).Settle(f.t.Context(), []shard.Lease{claimed.Lease()})
		check.OK(f.t, err)
		check.Equal(t, "settled", n, 1)
	}
	check.Equal(t, "delivered", f.members(), 0)
	for _, r := range c.ScheduleMany(f.t.Context(), []Request{grouped("a", "x"), grouped("b", "y"), grouped("a", "x")}) {
		check.OK(f.t, r.Err)
	}
	check.Equal(t, "many", f.group(c, "a")+" "+f.group(c, "b"), "x y")
	check.Equal(t, "members of many", f.members(), 2)
}

// TestAGroupStaysWholeWhileTheShardCountChanges: before, during and after.
func TestAGroupStaysWholeWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	want := map[string]bool{}
	add := func(group, id string) {
		t.Helper()
		_, err := c.Schedule(f.t.Context(), grouped(group, id))
		check.OK(f.t, err)
		if group == "g" {
			want[id] = true
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "h", "i"} {
		add("g", id)
		add("o", "other-"+id)
	}
	p := f.begin(5)
	for n := range 3 {
		add("g", splitID(p, n))
		add("o", splitID(p, 3+n))
	}
	check.Equal(t, "during the change", f.group(c, "g"), strings.Join(slices.Sorted(maps.Keys(want)), " "))
	moved, err := c.RescheduleGroup(f.t.Context(), orders, "g", In(3*time.Hour))
	check.OK(f.t, err)
	check.Equal(t, "moved", int(moved), len(want))
	n, err := c.CancelGroup(f.t.Context(), orders, "g")
	check.OK(f.t, err)
	check.Equal(t, "cancelled", int(n), len(want))
	f.move()
	check.Equal(t, "after the change", f.group(c, "g"), "")
	others := map[string]bool{}
	for s, err := range c.ListGroup(f.t.Context(), orders, "o") {
		check.OK(f.t, err)
		others[s.ID] = true
	}
	check.Equal(t, "of the other group", len(others), 11)
	f.inPlace(others)
}

// TestARuleOfGroups: a group has 1 to 255 bytes of UTF-8, and a call for a group names one.
func TestARuleOfGroups(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	for _, group := range []string{strings.Repeat("x", 256), "\xff"} {
		_, err := c.Schedule(f.t.Context(), grouped(group, "a"))
		is(t, err, task.ErrInvalid, "group")
	}
	longest := strings.Repeat("ü", 127) + "x"
	_, err := c.Schedule(f.t.Context(), grouped(longest, strings.Repeat("i", 255)))
	check.OK(f.t, err)
	check.Equal(t, "the longest", f.group(c, longest), strings.Repeat("i", 255))
	_, err = c.CancelGroup(f.t.Context(), orders, "")
	is(t, err, task.ErrInvalid, "group")
	_, err = c.RescheduleGroup(f.t.Context(), orders, "", Now())
	is(t, err, task.ErrInvalid, "group")
	_, err = c.RescheduleGroup(f.t.Context(), orders, "g", When{})
	is(t, err, task.ErrInvalid)
	_, err = c.CancelGroup(f.t.Context(), "nothing", "g")
	is(t, err, task.ErrUnknownTopic)
	for _, err := range c.ListGroup(f.t.Context(), orders, "") {
		is(t, err, task.ErrInvalid, "group")
	}
	for _, err := range c.ListGroup(f.t.Context(), "nothing", "g") {
		is(t, err, task.ErrUnknownTopic)
	}
}

// TestATaskThatCannotBeNotedIsNotStored: the index comes first, so that no stored task is
// missing there.
func TestATaskThatCannotBeNotedIsNotStored(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	for at := range 64 { // a key of another type
		check.OK(f.t, f.rdb.Set(f.t.Context(), f.prefix+":group:{orders:"+strconv.Itoa(at)+"}", "x", 0).Err())
	}
	results := c.ScheduleMany(f.t.Context(), []Request{grouped("g", "a"), grouped("", "b")})
	if err := results[0].Err; err == nil || errors.Is(err, task.ErrUncertain) {
		t.Errorf("in a group: %v", err)
	}
	check.OK(f.t, results[1].Err)
	f.inPlace(map[string]bool{"b": true})
}

// TestAStoredTaskIsInItsGroupWhateverIsLost: Redis stores the task and the answer is lost.
func TestAStoredTaskIsInItsGroupWhateverIsLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	over := faults.Lose(f.rdb, 1, func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") })
	_, err := c.Schedule(f.t.Context(), grouped("g", "a"))
	check.OK(f.t, err)
	check.Equal(t, "a reply was lost", over(), true)
	check.Equal(t, "group", f.group(c, "g"), "a")
	check.Equal(t, "members, one of them for a sweep", f.members(), 2)
}
