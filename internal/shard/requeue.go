package shard

import (
	"context"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Requeue is a task that its consumer stores again, to retry it or to park it.
type Requeue struct {
	ID string
	// Op identifies the operation. A caller that retries after an error passes the same
	// Op, and is then not refused because of what it stored itself. Defaults to a new
	// one.
	Op Op
	// Due, in ms, and Attempt are the delivery's. A version stored after it stays.
	Due     int64
	Attempt int
	// Next is when the task is due again, in ms, later than Due. Park parks it instead.
	Next int64
	Park bool
	// Attempts is how many attempts the task has had. The next one counts on from it.
	Attempts int
	// Scheduled is the delivery's scheduled time, in ms: the task is no new version.
	Scheduled int64
	// Reason of the failure; "" if there was none.
	Reason string
	Body   []byte
}

// Kept is the stored record that stays in place of the one to be stored.
type Kept struct {
	Due, Scheduled int64 // ms
	Op             Op    // "" if the record can't be read
}

// Requeuing says how a shard stores a task again.
type Requeuing struct {
	// Replace is the op of a record that doesn't stay.
	Replace Op
	// Moving: the task goes from one shard to another in this change.
	Moving bool
	// Since is the old shard's copy, if that was stored after the delivery.
	Since *Kept
}

// Requeue stores a task for its consumer. It returns the record that stays in its place;
// nil if none does.
func (s Shard) Requeue(ctx context.Context, p Placement, deadline int64, a Requeue, r Requeuing) (*Kept, error) {
	var next any = a.Next
	if a.Park {
		next = "park"
	}
	keys := s.taskKeys(s.Wake())
	call := luascript.Call{Script: "requeue", Keys: keys, Deadline: deadline, ReplicasKey: s.fence(), Args: []any{
		p.String(), string(a.Op), luascript.DeadlineArg{}, a.ID, a.Due, a.Attempt, next, a.Attempts, a.Scheduled, r.Moving,
		Release{Reason: a.Reason}.reason(), string(r.Replace), r.Since != nil, a.Body,
	}}
	if InGroup(a.Body) {
		call.Renew = func() []any {
			if !s.topic.rejoin(ctx, []string{a.ID}, a.Body) {
				return nil
			}
			return call.Args
		}
	}
	status, rest, err := answer(s.topic.store.scripts.Run(ctx, call))
	switch {
	case err != nil:
		return nil, fmt.Errorf("shard %d: %w", s.n, err)
	case status == "ok":
		return nil, nil
	case status == "old":
		return r.Since, nil
	case rest.Left() == 0: // the record can't be read
		return &Kept{}, nil
	}
	stays := &Kept{Due: rest.Int(), Scheduled: rest.Int(), Op: Op(rest.Text())}
	return stays, rest.Err()
}
