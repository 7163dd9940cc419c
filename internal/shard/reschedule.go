package shard

import (
	"context"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Move describes one new due time.
type Move struct {
	Shard  int
	Op     Op
	ID     string
	When   task.When
	Moving bool
	// Fallback is the task as read at the old shard while it is moving; nil if it is not
	// there.
	Fallback *Record
	// Term is of the intake that sends the move.
	Term Term
	// Retime keeps what a reschedule begins again; nil: it is a reschedule.
	Retime *Retiming
}

// MoveResult is the result of one Move.
type MoveResult struct {
	// Due in ms; with task.ErrReplicas too.
	Due int64
	// Err is task.ErrNotFound, task.ErrReplicas, a *MovedError, ErrLate, ErrSuperseded,
	// ErrUnraised, or Redis's. With a Retiming it may be ErrChanged, ErrLeased, ErrParked
	// or ErrDue too.
	Err error
}

// Reschedule gives tasks new due times, in one round trip. The results are in the order of
// the moves. Moves of one ID are carried out in their order.
func (t *Topic) Reschedule(ctx context.Context, p Placement, deadline int64, moves []Move) []MoveResult {
	calls, placement := make([]luascript.Call, len(moves)), p.String()
	for i := range moves {
		if calls[i] = t.rescheduleCall(placement, deadline, &moves[i]); moves[i].Retime != nil {
			calls[i] = t.retimeCall(placement, deadline, &moves[i])
		}
	}
	results := make([]MoveResult, len(moves))
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		read := t.moved
		if moves[i].Retime != nil {
			read = t.retimed
		}
		due, err := read(reply, moves[i].Shard)
		results[i] = MoveResult{due, err}
	}
	return results
}

func (t *Topic) moved(reply luascript.Reply, shard int) (due int64, err error) {
	status, rest, err := answer(reply)
	err = wrapIf(err, "reschedule in shard %d of topic %s", shard, t.name)
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

// Reschedule is Topic.Reschedule of one task in this shard.
func (s Shard) Reschedule(ctx context.Context, p Placement, deadline int64, m Move) (int64, error) {
	m.Shard = s.n
	r := s.topic.Reschedule(ctx, p, deadline, []Move{m})[0]
	return r.Due, r.Err
}

func (t *Topic) rescheduleCall(placement string, deadline int64, m *Move) luascript.Call {
	fallback, s := "", t.Shard(m.Shard)
	if m.Fallback != nil {
		fallback = m.Fallback.raw
	}
	return luascript.Call{Script: "reschedule", Keys: s.taskKeys(s.Wake()), Deadline: deadline, ReplicasKey: s.fence(),
		Args: []any{placement, string(m.Op), luascript.DeadlineArg{}, m.ID, whenArg(m.When), m.Moving, fallback,
			m.Term.String()}}
}
