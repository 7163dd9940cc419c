package shard

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// recur stores a recurring task that is due now, and claims its run.
func (c *sandbox) recur(r task.Recurrence) *Claimed {
	c.t.Helper()
	check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: "a", When: task.Now(), Body: recurring(c.t, r)}}}).Err)
	return c.run()
}

func recurring(t *testing.T, r task.Recurrence) []byte {
	t.Helper()
	b, err := Encode(&task.Task{Payload: []byte("p"), Recurrence: &r})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run claims the run that is due.
func (c *sandbox) run() *Claimed {
	c.t.Helper()
	b := c.claimIDs("a")
	return &b.Tasks[0]
}

func (c *sandbox) advance(a ...Advance) int {
	c.t.Helper()
	n, err := c.Shard(0).Advance(c.t.Context(), a)
	check.OK(c.t, err)
	return n
}

// advanced returns how to settle a run, with the next one due in a moment.
func advanced(l *Claimed, next time.Time) Advance {
	return Advance{Lease: Lease{ID: l.ID, Token: l.Token}, Next: next}
}

// TestARuleSurvivesItsRecord: the record has the rule and the message, in both formats.
func TestARuleSurvivesItsRecord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := task.Recurrence{
			Every: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "every")) * time.Millisecond,
			Cron:  rapid.StringN(0, 255, 255).Draw(t, "cron"), Zone: rapid.StringN(0, 255, 255).Draw(t, "zone"),
			Runs: int(rapid.Uint32().Draw(t, "runs")), Each: rapid.Bool().Draw(t, "each"),
		}
		if ms := rapid.Int64Range(0, 1e13).Draw(t, "until"); ms > 0 {
			r.Until = time.UnixMilli(ms).UTC()
		}
		in := task.Task{Topic: "orders", ID: "a", Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), Recurrence: &r}
		if rapid.Bool().Draw(t, "amqp") {
			in.AMQP = &task.AMQP{RoutingKey: "k", Headers: map[string]any{"n": int64(1)}}
		} else {
			in.Headers = map[string]string{"h": "v"}
		}
		body, err := Encode(&in)
		if err != nil {
			t.Fatal(err)
		}
		head := "\x30" + string(appendUint48(appendUint48(nil, 5000), 4000)) + "sixops"
		out, err := DecodeRecord("orders", "a", head+string(body))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(out.Recurrence, &r) || !slices.Equal(out.Payload, in.Payload) ||
			!reflect.DeepEqual(out.Headers, in.Headers) || (out.AMQP == nil) != (in.AMQP == nil) {
			t.Fatalf("got %+v of %+v", out, in)
		}
	})
}

// TestASettledRunMakesTheNextOneDue: in one step, with a fresh start, and once.
func TestASettledRunMakesTheNextOneDue(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	l := c.recur(task.Recurrence{Every: time.Hour})
	check.Equal(t, "released", c.release(Release{Lease: Lease{ID: l.ID, Token: l.Token}, Attempted: true,
		Redelivered: true,
		Reason:      "x"}), 1)
	l = c.run()
	check.Equal(t, "attempt", l.Attempt, 2)
	next := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	check.Equal(t, "settled", c.advance(advanced(l, next)), 1)
	check.Equal(t, "settled again", c.advance(advanced(l, next)), 0)
	stored := c.read("a")
	check.Equal(t, "state", stored.State, task.Waiting)
	check.Equal(t, "due", stored.Due, next)
	check.Equal(t, "attempt", stored.Attempt, 1)
	check.Equal(t, "redelivered", stored.Redelivered, false)
	check.Equal(t, "reason", stored.Reason, "")
	check.Equal(t, "payload", string(stored.Payload), "p")
	check.Equal(t, "events", c.life("a"), "scheduled, retried x, delivered")
}

// TestARunIsSettledOnlyUnderItsLease: not by a scanner that slept while another one took
// over, and not after the task was replaced, moved or cancelled.
func TestARunIsSettledOnlyUnderItsLease(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *sandbox){
		"replaced": func(c *sandbox) {
			check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: "a", When: task.In(time.Hour),
				Body: recurring(c.t, task.Recurrence{Every: time.Minute})}}}).Err)
		},
		"moved": func(c *sandbox) {
			_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a",
				When: task.In(time.Hour)})
			check.OK(c.t, err)
		},
		"cancelled":  func(c *sandbox) { c.delete("a") },
		"given back": func(c *sandbox) { c.release(Release{Lease: leases(c.claimFor(0))[0]}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			l := c.recur(task.Recurrence{Every: time.Second})
			if name == "given back" {
				c.release(Release{Lease: Lease{ID: l.ID, Token: l.Token}})
			} else {
				change(c)
			}
			before := c.everything()
			check.Equal(t, "settled", c.advance(advanced(l, time.Now())), 0)
			if !reflect.DeepEqual(before, c.everything()) {
				t.Errorf("a late settlement changed %v to %v", before, c.everything())
			}
		})
	}
}

// TestAMoveKeepsThePlannedTime: of the first move, until the run is settled. A run that a
// scanner has may be in a queue, so its move marks it.
func TestAMoveKeepsThePlannedTime(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	l := c.recur(task.Recurrence{Every: time.Hour, Runs: 3})
	planned := l.Due
	move := func(in time.Duration) Stored {
		_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.In(in)})
		check.OK(c.t, err)
		return c.read("a")
	}
	stored := move(time.Minute)
	check.Equal(t, "planned", stored.Recurrence.Planned, planned)
	check.Equal(t, "redelivered", stored.Redelivered, true)
	check.Until(t, "the ms after the planned one", func() bool { return c.now() > planned.UnixMilli() })
	_, err := c.retime("a", task.In(-time.Second), false)
	check.OK(c.t, err)
	check.Equal(t, "planned after another move", c.read("a").Recurrence.Planned, planned)
	l = c.run()
	check.Equal(t, "the run's ID", RunOf(l.Task).ID, task.RunID("a", planned))
	check.Equal(t, "settled", c.advance(advanced(l, planned.Add(time.Hour))), 1)
	stored = c.read("a")
	check.Equal(t, "planned after the run", stored.Recurrence.Planned.IsZero(), true)
	check.Equal(t, "runs", stored.Recurrence.Runs, 2)
	check.Equal(t, "redelivered", move(time.Minute).Redelivered, false)
}

// TestTheLastRunRemovesTheTask: by its count, and if the rule has no next time.
func TestTheLastRunRemovesTheTask(t *testing.T) {
	t.Parallel()
	for _, r := range []task.Recurrence{{Every: time.Hour, Runs: 1}, {Every: time.Hour, Until: time.UnixMilli(4e10)}} {
		c := newSandbox(t, 1)
		l := c.recur(r)
		a := l.Advance(time.Now())
		check.Equal(t, "next", a.Next.IsZero(), true)
		check.Equal(t, "settled", c.advance(a), 1)
		check.Equal(t, "keys of tasks", c.rdb.Exists(c.t.Context(), c.Shard(0).due(), c.Shard(0).tasks()).Val(), 0)
	}
}

// TestListsHaveTheRule: also without the payload, and in a message of an intake.
func TestListsHaveTheRule(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	r := task.Recurrence{Cron: "0 9 * * *", Zone: "Europe/Berlin", Runs: 7}
	amqp, err := Encode(&task.Task{Payload: make([]byte, 1000), Recurrence: &r, AMQP: &task.AMQP{RoutingKey: "k"}})
	check.OK(c.t, err)
	check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{
		{ID: "a", When: task.In(time.Hour), Body: recurring(t, r)}, {ID: "b", When: task.In(time.Hour), Body: amqp},
	}}).Err)
	for _, wanted := range []part{partMeta, partWhole} {
		l := c.Shard(0).List(SpanOf(task.Waiting), "")
		l.part = wanted
		all, err := l.Next(c.t.Context())
		check.OK(c.t, err)
		check.Equal(t, "tasks", len(all), 2)
		for _, s := range all {
			if s.Err != nil || !reflect.DeepEqual(s.Recurrence, &r) {
				t.Errorf("part %d of %s: %+v, %v", wanted, s.ID, s.Recurrence, s.Err)
			}
		}
	}
}

// TestARuleThatNobodyKnowsIsParked: its zone may have come with a newer version.
func TestARuleThatNobodyKnowsIsParked(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	body := withRule(&task.Recurrence{Cron: "0 9 * * *", Zone: "Mars/Olympus"}, []byte{0})
	check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: "a", When: task.Now(), Body: body}}}).Err)
	b := c.claim()
	if len(b.Tasks) != 0 || len(b.Bad) != 1 {
		t.Errorf("got %+v", b)
	}
}

// TestAChangeOfMBringsARecurringTaskAlong: its record and its planned time.
func TestAChangeOfMBringsARecurringTaskAlong(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: "a", When: task.In(time.Hour),
		Body: recurring(t, task.Recurrence{Every: time.Hour})}}}).Err)
	_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a",
		When: task.In(2 * time.Hour)})
	check.OK(c.t, err)
	before := c.read("a")
	c.begin(2)
	export := c.export(time.Minute, "a")
	check.Equal(t, "exported", len(export.Tasks), 1)
	check.Equal(t, "record", export.Tasks[0].record, before.raw)
}

// TestARunOfAnIntakeHasAMessageIDOfItsOwn: a retry of it through the intake must not replace
// the recurring task. Another message-id stays.
func TestARunOfAnIntakeHasAMessageIDOfItsOwn(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1796119200000)
	for id, want := range map[string]string{"a": task.RunID("a", due), "other": "other", "": ""} {
		of := task.Task{ID: "a", Due: due, Recurrence: &task.Recurrence{Every: time.Hour}, AMQP: &task.AMQP{}}
		of.AMQP.Properties.MessageID = id
		run := RunOf(of)
		check.Equal(t, "message-id", run.AMQP.Properties.MessageID, want)
		check.Equal(t, "message-id of the task", of.AMQP.Properties.MessageID, id)
	}
}

// TestARunAfterARedeliveredOneIsMarkedWhileShardsChange: a second copy of the task may be in
// another shard, and go on as well.
func TestARunAfterARedeliveredOneIsMarkedWhileShardsChange(t *testing.T) {
	t.Parallel()
	for _, moving := range []bool{false, true} {
		c := newSandbox(t, 1)
		if moving {
			c.begin(2)
		}
		l := c.recur(task.Recurrence{Every: time.Hour})
		check.Equal(t, "released", c.release(Release{Lease: Lease{ID: l.ID, Token: l.Token}, Redelivered: true}), 1)
		l = c.run()
		check.Equal(t, "this run is marked", l.Redelivered, true)
		check.Equal(t, "settled", c.advance(advanced(l, l.Due.Add(time.Hour))), 1)
		check.Equal(t, "the next run is marked", c.read("a").Redelivered, moving)
	}
}
