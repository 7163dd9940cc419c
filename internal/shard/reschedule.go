package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	// Unsent: no script had this move, because an earlier script ended with Err.
	Unsent bool
}

const (
	// movesAtOnce is how many tasks one script moves, and moveBytes how many bytes of their
	// records it reads. The script ends with the task that reaches it. It blocks Redis for
	// about 1 ms with 200 small tasks, and for 3 ms with 512 KiB.
	movesAtOnce = 200
	moveBytes   = 512 << 10
)

// moveBatch has the moves without a result that may share a script.
type moveBatch struct {
	shard int
	todo  []int // their indexes
	sent  int   // how many of todo a script had, from the first
	short error // matches task.ErrReplicas: too few replicas had an earlier script
}

// batchesOf groups moves by what a script takes only once. All moves of one ID must share it.
func batchesOf(moves []Move) (all []*moveBatch) {
	type key struct {
		shard          int
		moving, retime bool
		term           Term
	}
	by := map[key]*moveBatch{}
	for i := range moves {
		m := &moves[i]
		k := key{m.Shard, m.Moving, m.Retime != nil, m.Term}
		if by[k] == nil {
			by[k] = &moveBatch{shard: m.Shard}
			all = append(all, by[k])
		}
		by[k].todo = append(by[k].todo, i)
	}
	return all
}

// end gives the moves without a result an error. away: Redis can't be reached or doesn't
// answer.
func (b *moveBatch) end(err error, away bool, results []MoveResult) {
	unsent := err
	if away { // %s, not %w: nothing is uncertain
		unsent = fmt.Errorf("%w: an earlier move of the same call failed, this one was not begun: %s", task.ErrUnavailable,
			err.Error())
	}
	for n, i := range b.todo {
		if results[i].Err = err; n >= b.sent {
			results[i] = MoveResult{Err: unsent, Unsent: true}
		}
	}
	b.todo = nil
}

// Reschedule gives tasks new due times. It sends one script for each 200 or so of a shard,
// and the scripts for several shards in one round trip. The results are in the order of the moves.
// Moves of one ID are carried out in their order. Once Redis can't be reached or doesn't
// answer, Reschedule sends nothing more.
func (t *Topic) Reschedule(ctx context.Context, p Placement, deadline int64, moves []Move) []MoveResult {
	results, placement := make([]MoveResult, len(moves)), p.String()
	var away error
	for left := batchesOf(moves); len(left) > 0; {
		calls := make([]luascript.Call, len(left))
		for n, b := range left {
			calls[n] = t.moveCall(placement, deadline, moves, b)
		}
		for n, reply := range t.store.scripts.RunAll(ctx, calls) {
			away = cmp.Or(away, t.moved(reply, left[n], results))
		}
		if away = cmp.Or(away, ctx.Err()); away != nil {
			for _, b := range left {
				b.end(away, true, results)
			}
		}
		left = slices.DeleteFunc(left, func(b *moveBatch) bool { return len(b.todo) == 0 })
	}
	return results
}

// moved reads the results of the first moves of a batch. If the script failed, the batch
// ends with its error. moved returns that error if Redis couldn't be reached or didn't answer.
func (t *Topic) moved(reply luascript.Reply, b *moveBatch, results []MoveResult) (away error) {
	_, rest, err := answer(reply)
	n := rest.Left()
	if n > b.sent || n == 0 && (err == nil || errors.Is(err, task.ErrReplicas)) {
		err = fmt.Errorf("script answered %d due times for %d tasks", n, b.sent)
	}
	err = wrapIf(err, "reschedule in shard %d of topic %s", b.shard, t.name)
	if err != nil && !errors.Is(err, task.ErrReplicas) {
		if cause := reply.Err(); luascript.Unanswered(cause) || errors.Is(luascript.Unasked(cause), task.ErrUnavailable) {
			away = err
		}
		b.end(err, away != nil, results)
		return away
	}
	b.short = cmp.Or(b.short, err)
	for _, i := range b.todo[:n] {
		if due := rest.Int(); due > 0 {
			results[i] = MoveResult{Due: due, Err: b.short}
		} else {
			results[i].Err = cmp.Or(rest.Err(), t.unmoved(due))
		}
	}
	b.todo, b.sent = b.todo[n:], b.sent-n
	return nil
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

// moveCall returns the call for the first moves of a batch. If too few replicas had an
// earlier script, it doesn't wait for them: each wait takes a second.
func (t *Topic) moveCall(placement string, deadline int64, moves []Move, b *moveBatch) luascript.Call {
	s, first := t.Shard(b.shard), &moves[b.todo[0]]
	call := luascript.Call{Script: "reschedule", Keys: s.taskKeys(s.Wake()), Deadline: deadline, ReplicasKey: s.fence(),
		Args: []any{placement, first.Moving, luascript.DeadlineArg{}, first.Term.String(), moveBytes}}
	if first.Retime != nil {
		call.Script = "retime"
	}
	if b.short != nil {
		call.ReplicasKey = ""
	}
	bytes := 0
	for n, i := range b.todo[:min(len(b.todo), movesAtOnce)] {
		m, fallback := &moves[i], ""
		if m.Fallback != nil {
			fallback = m.Fallback.raw
		}
		if bytes += len(fallback); bytes > moveBytes && n > 0 {
			break
		}
		b.sent = max(b.sent, n+1)
		call.Args = append(call.Args, string(m.Op), m.ID, whenArg(m.When), fallback)
		if m.Retime != nil {
			call.Args = append(call.Args, string(m.Retime.Seen.Op), m.Retime.Seen.Attempts, m.Retime.Now)
		}
	}
	return call
}
