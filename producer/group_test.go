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
	for s, err := range c.ListGroup(f.ctx(), orders, name) {
		f.ok(err)
		equal(f.t, "group of "+s.ID, s.Group, name)
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
			page, err := part.Next(f.ctx(), 500)
			f.ok(err)
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
		_, err := c.Schedule(f.ctx(), r)
		f.ok(err)
	}
	equal(t, "claimed", len(f.claimAll()), 1)
	equal(t, "group", f.group(c, "k"), "carried k\x00later leased recurring")
	equal(t, "another group", f.group(c, "kk"), "other")
	equal(t, "a group that nobody is in", f.group(c, "kkk"), "")

	stored, err := c.Get(f.ctx(), orders, "carried")
	f.ok(err)
	equal(t, "message", stored.AMQP.Headers["h"], any("v"))
	stored, err = c.Get(f.ctx(), orders, "recurring")
	f.ok(err)
	equal(t, "rule", stored.Recurrence.Every, time.Hour)

	to := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond)
	n, err := c.RescheduleGroup(f.ctx(), orders, "k", At(to))
	f.ok(err)
	equal(t, "moved, but for the leased one", n, 3)
	for s, err := range c.List(f.ctx(), orders, Filter{Group: "k", State: task.Waiting, WithoutPayload: true}) {
		f.ok(err)
		equal(t, "due of "+s.ID, s.Due.UnixMilli(), to.UnixMilli())
		equal(t, "payload of "+s.ID, len(s.Payload), 0)
	}
	if planned := f.mustGet(c, "recurring").Recurrence.Planned; planned.IsZero() {
		t.Error("the moved run has no planned time")
	}
	shifted, err := c.ShiftMatching(f.ctx(), Matching{Topic: orders, Group: "k", Prefix: "c"}, time.Hour)
	f.ok(err)
	equal(t, "shifted", shifted.Changed, 1)

	n, err = c.CancelGroup(f.ctx(), orders, "k")
	f.ok(err)
	equal(t, "cancelled", n, 4)
	f.inPlace(map[string]bool{"other": true, "alone": true, "nul": true})
	equal(t, "left of the index", f.members(), 2)
	n, err = c.CancelGroup(f.ctx(), orders, "k")
	f.ok(err)
	equal(t, "cancelled again", n, 0)
}

func (f *fleet) mustGet(c *Client, id string) Stored {
	f.t.Helper()
	s, err := c.Get(f.ctx(), orders, id)
	f.ok(err)
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
		_, err := c.Schedule(f.ctx(), r)
		f.ok(err)
	}
	schedule(grouped("a", "x"))
	schedule(grouped("a", "x"))
	equal(t, "scheduled twice", f.members(), 1)
	schedule(grouped("b", "x"))
	equal(t, "members", f.members(), 1)
	equal(t, "the old group", f.group(c, "a"), "")
	equal(t, "the new group", f.group(c, "b"), "x")
	refused := grouped("a", "x")
	refused.IfAbsent = true
	_, err := c.Schedule(f.ctx(), refused)
	is(t, err, task.ErrExists)
	refused = grouped("a", "none")
	refused.IfPresent = true
	_, err = c.Schedule(f.ctx(), refused)
	is(t, err, task.ErrNotFound)
	equal(t, "after two refusals", f.members(), 1)
	schedule(grouped("", "x"))
	equal(t, "in no group any more", f.members(), 0)

	schedule(grouped("a", "x"))
	_, err = c.Reschedule(f.ctx(), orders, "x", In(2*time.Hour))
	f.ok(err)
	equal(t, "moved", f.group(c, "a"), "x")
	f.ok(c.Cancel(f.ctx(), orders, "x"))
	equal(t, "cancelled", f.members(), 0)

	due := grouped("a", "x")
	due.When = Now()
	schedule(due)
	for _, claimed := range f.claimAll() {
		equal(t, "group of a delivery", claimed.Group, "a")
		n, err := f.Shard(claimed.Shard).Settle(f.ctx(), []shard.Lease{claimed.Lease()})
		f.ok(err)
		equal(t, "settled", n, 1)
	}
	equal(t, "delivered", f.members(), 0)
	for _, r := range c.ScheduleMany(f.ctx(), []Request{grouped("a", "x"), grouped("b", "y"), grouped("a", "x")}) {
		f.ok(r.Err)
	}
	equal(t, "many", f.group(c, "a")+" "+f.group(c, "b"), "x y")
	equal(t, "members of many", f.members(), 2)
}

// TestAGroupStaysWholeWhileTheShardCountChanges: before, during and after.
func TestAGroupStaysWholeWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	want := map[string]bool{}
	add := func(group, id string) {
		t.Helper()
		_, err := c.Schedule(f.ctx(), grouped(group, id))
		f.ok(err)
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
	equal(t, "during the change", f.group(c, "g"), strings.Join(slices.Sorted(maps.Keys(want)), " "))
	moved, err := c.RescheduleGroup(f.ctx(), orders, "g", In(3*time.Hour))
	f.ok(err)
	equal(t, "moved", int(moved), len(want))
	n, err := c.CancelGroup(f.ctx(), orders, "g")
	f.ok(err)
	equal(t, "cancelled", int(n), len(want))
	f.move()
	equal(t, "after the change", f.group(c, "g"), "")
	others := map[string]bool{}
	for s, err := range c.ListGroup(f.ctx(), orders, "o") {
		f.ok(err)
		others[s.ID] = true
	}
	equal(t, "of the other group", len(others), 11)
	f.inPlace(others)
}

// TestARuleOfGroups: a group has 1 to 255 bytes of UTF-8, and a call for a group names one.
func TestARuleOfGroups(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	for _, group := range []string{strings.Repeat("x", 256), "\xff"} {
		_, err := c.Schedule(f.ctx(), grouped(group, "a"))
		is(t, err, task.ErrInvalid, "group")
	}
	longest := strings.Repeat("ü", 127) + "x"
	_, err := c.Schedule(f.ctx(), grouped(longest, strings.Repeat("i", 255)))
	f.ok(err)
	equal(t, "the longest", f.group(c, longest), strings.Repeat("i", 255))
	_, err = c.CancelGroup(f.ctx(), orders, "")
	is(t, err, task.ErrInvalid, "group")
	_, err = c.RescheduleGroup(f.ctx(), orders, "", Now())
	is(t, err, task.ErrInvalid, "group")
	_, err = c.RescheduleGroup(f.ctx(), orders, "g", When{})
	is(t, err, task.ErrInvalid)
	_, err = c.CancelGroup(f.ctx(), "nothing", "g")
	is(t, err, task.ErrUnknownTopic)
	for _, err := range c.ListGroup(f.ctx(), orders, "") {
		is(t, err, task.ErrInvalid, "group")
	}
	for _, err := range c.ListGroup(f.ctx(), "nothing", "g") {
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
		f.ok(f.rdb.Set(f.ctx(), f.prefix+":group:{orders:"+strconv.Itoa(at)+"}", "x", 0).Err())
	}
	results := c.ScheduleMany(f.ctx(), []Request{grouped("g", "a"), grouped("", "b")})
	if err := results[0].Err; err == nil || errors.Is(err, task.ErrUncertain) {
		t.Errorf("in a group: %v", err)
	}
	f.ok(results[1].Err)
	f.inPlace(map[string]bool{"b": true})
}

// TestAStoredTaskIsInItsGroupWhateverIsLost: Redis stores the task and the answer is lost.
func TestAStoredTaskIsInItsGroupWhateverIsLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	over := faults.Lose(f.rdb, 1, func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") })
	_, err := c.Schedule(f.ctx(), grouped("g", "a"))
	f.ok(err)
	equal(t, "a reply was lost", over(), true)
	equal(t, "group", f.group(c, "g"), "a")
	equal(t, "members, one of them for a sweep", f.members(), 2)
}
