package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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

const (
	// movesAtOnce is how many tasks one script moves, and moveBytes how many bytes of their
	// records. The script ends with the task that reaches it.
	movesAtOnce = 500
	moveBytes   = 1 << 20
)

// moveBatch has the moves that may share a script. It names them by their indexes.
type moveBatch struct {
	shard          int
	moving, retime bool
	term           Term
}

// Reschedule gives tasks new due times. It sends one script for each 500 or so of a shard,
// and the scripts for several shards in one round trip. The results are in the order of the moves.
// Moves of one ID are carried out in their order.
func (t *Topic) Reschedule(ctx context.Context, p Placement, deadline int64, moves []Move) []MoveResult {
	left, placement := map[moveBatch][]int{}, p.String()
	for i := range moves {
		m := &moves[i]
		b := moveBatch{m.Shard, m.Moving, m.Retime != nil, m.Term}
		left[b] = append(left[b], i)
	}
	results := make([]MoveResult, len(moves))
	for len(left) > 0 {
		var batches []moveBatch
		var calls []luascript.Call
		for b, todo := range left {
			batches, calls = append(batches, b), append(calls, t.moveCall(placement, deadline, moves, todo))
		}
		for n, reply := range t.store.scripts.RunAll(ctx, calls) {
			b := batches[n]
			if left[b] = t.moved(reply, b.shard, left[b], results); len(left[b]) == 0 {
				delete(left, b)
			}
		}
	}
	return results
}

// moved reads the results of the first moves in todo, and returns the rest. If the call
// failed, all of them get its error.
func (t *Topic) moved(reply luascript.Reply, shard int, todo []int, results []MoveResult) (left []int) {
	_, rest, err := answer(reply)
	n := rest.Left()
	if n > len(todo) || n == 0 && (err == nil || errors.Is(err, task.ErrReplicas)) {
		err = fmt.Errorf("script answered %d due times for %d tasks", n, len(todo))
	}
	err = wrapIf(err, "reschedule in shard %d of topic %s", shard, t.name)
	if err != nil && !errors.Is(err, task.ErrReplicas) {
		for _, i := range todo {
			results[i].Err = err
		}
		return nil
	}
	for _, i := range todo[:n] {
		if due := rest.Int(); due > 0 {
			results[i] = MoveResult{due, err}
		} else {
			results[i].Err = cmp.Or(rest.Err(), t.unmoved(due))
		}
	}
	return todo[n:]
}

// unmoved returns the error for the answer about a task that stays as it is.
func (t *Topic) unmoved(answer int64) error {
	reason := map[int64]error{0: task.ErrNotFound, -1: errUnreadable, -2: ErrChanged, -3: ErrLeased, -4: ErrParked,
		-5: ErrDue}[answer]
	if reason == nil || answer == 0 {
		return cmp.Or(reason, fmt.Errorf("unknown answer of a script: %d", answer))
	}
	return fmt.Errorf("topic %s: %w", t.name, reason)
}

// errUnreadable means that a move left a record alone.
var errUnreadable = errors.New("UNREADABLE record: it is damaged, or of a newer format")

// Reschedule is Topic.Reschedule of one task in this shard.
func (s Shard) Reschedule(ctx context.Context, p Placement, deadline int64, m Move) (int64, error) {
	m.Shard = s.n
	r := s.topic.Reschedule(ctx, p, deadline, []Move{m})[0]
	return r.Due, r.Err
}

// moveCall returns the call for the first of some moves that may share a script.
func (t *Topic) moveCall(placement string, deadline int64, moves []Move, todo []int) luascript.Call {
	first := &moves[todo[0]]
	s := t.Shard(first.Shard)
	call := luascript.Call{Script: "reschedule", Keys: s.taskKeys(s.Wake()), Deadline: deadline, ReplicasKey: s.fence(),
		Args: []any{placement, first.Moving, luascript.DeadlineArg{}, first.Term.String(), moveBytes}}
	if first.Retime != nil {
		call.Script = "retime"
	}
	bytes := 0
	for _, i := range todo[:min(len(todo), movesAtOnce)] {
		m, fallback := &moves[i], ""
		if m.Fallback != nil {
			fallback = m.Fallback.raw
		}
		if bytes += len(fallback); bytes > moveBytes && m != first {
			break
		}
		call.Args = append(call.Args, string(m.Op), m.ID, whenArg(m.When), fallback)
		if m.Retime != nil {
			call.Args = append(call.Args, string(m.Retime.Seen.Op), m.Retime.Seen.Attempts, m.Retime.Now)
		}
	}
	return call
}
