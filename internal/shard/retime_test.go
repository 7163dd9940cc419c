package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// retime sends a retiming of a task's present version.
func (c *sandbox) retime(id string, when task.When, now bool) (int64, error) {
	c.t.Helper()
	s := c.read(id)
	return c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: id, When: when,
		Retime: &Retiming{Seen: s.Version(), Now: now}})
}

// retry puts a task and releases its first claim for an hour.
func (c *sandbox) retry(id string) Stored {
	c.t.Helper()
	c.put(task.Now(), id)
	b := c.claimIDs(id)
	back := Release{Lease: leases(b)[0], Attempted: true, Delay: time.Hour, Reason: "no queue"}
	check.Equal(c.t, "released", c.release(back), 1)
	return c.read(id)
}

// TestARetimedTaskKeepsItsAttempts, its reason, its due time if that has passed, and its
// message.
func TestARetimedTaskKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]struct {
		when task.When
		now  bool
		wait time.Duration
	}{
		"tried now":   {task.Now(), true, 0},
		"moved later": {task.In(2 * time.Hour), false, 2 * time.Hour},
		"moved":       {task.Now(), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			before, now := c.retry("a"), c.now()
			due, err := c.retime("a", move.when, move.now)
			check.OK(c.t, err)
			s := c.in("a", task.Waiting)
			check.Equal(t, "attempt", s.Attempt, 2)
			check.Equal(t, "reason", s.Reason, "no queue")
			check.Equal(t, "when that was", s.ReasonAt, before.ReasonAt)
			check.Equal(t, "payload", string(s.Payload), "payload of a")
			check.Equal(t, "due, as answered", s.Due.UnixMilli(), due)
			if wait := s.Next.Sub(time.UnixMilli(now)); wait < move.wait || wait > move.wait+time.Minute {
				t.Errorf("tried again in %s", wait)
			}
			if move.now {
				check.Equal(t, "due", s.Due, before.Due)
			} else {
				check.Equal(t, "due", s.Due, s.Next)
			}
			if move.wait == 0 {
				check.Equal(t, "attempt that is delivered", c.claimIDs("a").Tasks[0].Attempt, 2)
			}
		})
	}
}

// TestARetimingKeepsTheFirstDue of a consumer's retry, in both formats. A payload with the
// same text stays as it is.
func TestARetimingKeepsTheFirstDue(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	first, due := c.now()-1000, c.now()+time.Hour.Milliseconds()
	mark := NextMark(first, due, 3)
	payload := "\x0dduefleet-next\x00\x1f" + mark
	amqp, err := amqpmsg.Encode(amqpmsg.Message{RoutingKey: "due", Body: []byte(payload),
		Headers: map[string]any{HeaderNext: mark, "z": int64(1)}})
	check.OK(c.t, err)
	for id, body := range map[string][]byte{
		"marked": EncodeBody(&task.Task{Headers: map[string]string{HeaderNext: mark, "a": "b"}, Payload: []byte(payload)}),
		"amqp":   amqp,
		"plain":  EncodeBody(&task.Task{Payload: []byte(payload)}),
	} {
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: id, When: task.At(time.UnixMilli(due)), Body: body}}}).Err)
		for _, now := range []bool{false, true} {
			when := task.Now()
			if !now {
				when = task.In(2 * time.Hour)
			}
			_, err := c.retime(id, when, now)
			check.OK(c.t, err)
			s := c.read(id)
			want := first
			if id == "plain" {
				want = s.Due.UnixMilli()
			}
			check.Equal(t, id+": first due", s.FirstDue.UnixMilli(), want)
			check.Equal(t, id+": attempts before", s.before, 0)
			check.Equal(t, id+": payload", string(s.Payload), payload)
		}
	}
	check.Equal(t, "header", c.read("marked").Headers["a"], "b")
}

// TestARetimingLeavesAlone what another call changed, what is leased, parked or due already.
func TestARetimingLeavesAlone(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "parked")
	c.park("parked", "why")
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	old := c.retry("retried")
	c.put(task.Now(), "due")
	c.put(task.In(time.Hour), "put again")
	again := c.read("put again").Version()
	c.put(task.In(time.Hour), "put again")
	for id, row := range map[string]struct {
		seen Version
		now  bool
		want error
	}{
		"parked":    {c.read("parked").Version(), false, ErrParked},
		"leased":    {c.read("leased").Version(), false, ErrLeased},
		"due":       {c.read("due").Version(), true, ErrDue},
		"retried":   {Version{Op(old.Op), 0}, true, ErrChanged},
		"put again": {again, true, ErrChanged},
		"absent":    {again, true, task.ErrNotFound},
	} {
		before := c.everything()
		_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: id, When: task.Now(),
			Retime: &Retiming{Seen: row.seen, Now: row.now}})
		if !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", id, err, row.want)
		}
		for key, held := range c.everything() {
			if before[key] != held && key != c.Shard(0).fence() && key != c.Shard(0).handled() {
				t.Errorf("%s: %s changed", id, key)
			}
		}
	}
}

// TestARetimingIsExecutedOnce: the second execution of a call answers as the first, and
// doesn't add to the due time again.
func TestARetimingIsExecutedOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "a")
	m := Move{Op: NewOp(), ID: "a", When: task.In(2 * time.Hour), Retime: &Retiming{Seen: c.read("a").Version()}}
	due, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), m)
	check.OK(c.t, err)
	again, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), m)
	check.OK(c.t, err)
	check.Equal(t, "due", again, due)
	check.Equal(t, "stored", c.read("a").Due.UnixMilli(), due)
}
