package shard

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// A body of format 3 begins with the rule of a recurring task. The body of format 1 or 2
// follows.
//
//	offset  bytes
//	0       1      3
//	1       6      planned, Redis ms: when the run is due by the rule, if it was moved; else 0
//	7       4      runs that are left; 0: no limit
//	11      1      flags: 1 each
//	12      6      until, ms; 0: no end
//	18      6      every, ms; 0: by dates
//	24      1+n    cron
//	        1+n    zone
//
// Scripts read and write planned and runs.
const (
	recurringFormat = 3
	flagEach        = 1
)

// withRule returns the body of a recurring task, whose other body is given. r must have passed
// recurrence.Of.
func withRule(r *task.Recurrence, body []byte) []byte {
	b := make([]byte, 0, 26+len(r.Cron)+len(r.Zone)+len(body))
	b = appendUint48(append(b, recurringFormat), msOf(r.Planned))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Runs)) //nolint:gosec // recurrence.Of has checked it
	var flags byte
	if r.Each {
		flags = flagEach
	}
	b = appendUint48(append(b, flags), msOf(r.Until))
	b = appendUint48(b, r.Every.Milliseconds())
	b = append(append(b, byte(len(r.Cron))), r.Cron...)
	b = append(append(b, byte(len(r.Zone))), r.Zone...)
	return append(b, body...)
}

// msOf returns Unix ms, 0 for the zero time.
func msOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func appendUint48(b []byte, n int64) []byte {
	return append(b, byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// decodeRecurrence reads the rule before the other body.
func decodeRecurrence(in *reader) *task.Recurrence {
	in.length(1) // the format
	r := &task.Recurrence{}
	if planned := in.length(6); planned > 0 {
		r.Planned = time.UnixMilli(int64(planned)).UTC()
	}
	r.Runs = in.length(4)
	r.Each = in.length(1)&flagEach != 0
	if until := in.length(6); until > 0 {
		r.Until = time.UnixMilli(int64(until)).UTC()
	}
	most := int((task.MaxAhead + time.Hour).Milliseconds()) // a longer one is no rule
	r.Every = time.Duration(min(in.length(6), most)) * time.Millisecond
	r.Cron = in.textToKeep(in.length(1))
	r.Zone = in.textToKeep(in.length(1))
	return r
}

// RunOf returns the stored run of a recurring task, as it is delivered. Any other task is
// returned as it is. If a message of an intake has the task's ID as its message-id, it gets the
// run's. A run that comes back to the intake must not replace the recurring task.
func RunOf(t task.Task) task.Task {
	if t.Recurrence == nil {
		return t
	}
	if t.AMQP != nil && t.AMQP.Properties.MessageID == t.ID {
		run := *t.AMQP
		run.Properties.MessageID = task.RunID(t.ID, t.Recurrence.PlannedAt(t.Due))
		t.AMQP = &run
	}
	t.ID, t.Series, t.Recurrence = task.RunID(t.ID, t.Recurrence.PlannedAt(t.Due)), t.ID, nil
	return t
}

// Advance is one delivered run of a recurring task.
type Advance struct {
	Lease
	// Next is when the next run is due by the rule; zero: this was the last one.
	Next time.Time
	// last: the task ends with this run.
	last bool
	// Parked: the run was stored as a parked task of its own, since the broker didn't accept it.
	Parked bool
}

// Advance returns how to settle the run of a recurring task after its delivery, at the
// present time by Redis's clock.
func (c *Claimed) Advance(now time.Time) Advance {
	next, _ := c.rule.Next(c.Recurrence.PlannedAt(c.Due), now)
	return Advance{Lease: c.Lease(), Next: next, last: next.IsZero() || c.Recurrence.Runs == 1}
}

// Advance settles delivered runs of recurring tasks of one shard that are still leased under
// their tokens, and makes their next runs due. It returns how many.
func (s Shard) Advance(ctx context.Context, runs []Advance) (int, error) {
	return s.carryOut(ctx, s.advanceCalls(runs))
}

func (s Shard) advanceCalls(runs []Advance) (all []settling) {
	for some := range slices.Chunk(runs, MaxBatch) {
		p := settling{what: "settle runs", tasks: len(some)}
		args := make([]any, 0, 4*len(some))
		for _, r := range some {
			args = append(args, r.Token, r.ID, msOf(r.Next), !r.Parked)
			if r.last && r.member.Group != "" {
				p.left = append(p.left, r.Lease)
			}
		}
		p.call = luascript.Call{Script: "advance", Keys: []string{s.due(), s.tasks(), s.Wake(), s.fence()}, Args: args}
		all = append(all, p)
	}
	return all
}
