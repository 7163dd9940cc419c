package shard

import (
	"context"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Move describes one new due time; see Shard.Reschedule.
type Move struct {
	Op     Op
	ID     string
	When   When
	Moving bool
	// Fallback is the task as read at the old shard while it is moving; nil if it is not
	// there.
	Fallback *Record
	// Term is of the intake that sends the move.
	Term Term
}

// Reschedule gives a task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns task.ErrNotFound.
func (s Shard) Reschedule(ctx context.Context, p Placement, deadline int64, m Move) (int64, error) {
	status, rest, err := answer(s.topic.store.scripts.Run(ctx, s.rescheduleCall(p, deadline, m)))
	err = wrapIf(err, "reschedule in shard %d of topic %s", s.n, s.topic.name)
	if status == "" {
		return 0, err
	}
	at := rest.Int()
	switch {
	case rest.Err() != nil:
		return 0, rest.Err()
	case status == "none":
		return 0, task.ErrNotFound
	}
	return at, err
}

func (s Shard) rescheduleCall(p Placement, deadline int64, m Move) luascript.Call {
	fallback := ""
	if m.Fallback != nil {
		fallback = m.Fallback.raw
	}
	return luascript.Call{Script: "reschedule", Keys: s.taskKeys(s.Wake()), Deadline: deadline, ReplicasKey: s.fence(),
		Args: []any{p.String(), string(m.Op), luascript.DeadlineArg{}, m.ID, m.When.String(), m.Moving, fallback,
			m.Term.String()}}
}
