package shard

import (
	"cmp"
	"context"
	"errors"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Deletion is one batch of tasks to remove from a shard, in any state.
type Deletion struct {
	Names
	// Handled notes the IDs as taken over, so that no mover brings the tasks back.
	Handled bool
	// Term is of the intake that sends the batch.
	Term Term
	// Group removes only tasks of that group; "": all.
	Group string
}

// Delete removes batches of copies that are stored elsewhere, in one round trip. It returns an
// error or nil for each.
func (t *Topic) Delete(ctx context.Context, p Placement, deadline int64, batches []Deletion) []error {
	errs := make([]error, len(batches))
	for i, reply := range t.store.scripts.RunAll(ctx, t.deletions(p, deadline, batches, false)) {
		_, _, err := answer(reply)
		errs[i] = t.undeleted(batches[i].Shard, err)
	}
	return errs
}

// Withdrawal is the result for one batch.
type Withdrawal struct {
	// There says which tasks were stored and are removed, in the order of the batch's IDs.
	// Other says which stay, because they aren't in the group.
	There, Other []bool
	// Left are the removed versions that were in groups.
	Left []Member
	// At is the time of the cancel by the shard's clock, in ms; of an earlier cancel if the
	// clock was set back since.
	At int64
	// Err is for the whole batch: a *MovedError, ErrLate, ErrSuperseded, ErrUnraised,
	// task.ErrReplicas, or Redis's. With task.ErrReplicas the other fields are set too.
	Err error
}

// Withdraw cancels the tasks of batches in one round trip, with a result for each task.
func (t *Topic) Withdraw(ctx context.Context, p Placement, deadline int64, batches []Deletion) []Withdrawal {
	results := make([]Withdrawal, len(batches))
	for i, reply := range t.store.scripts.RunAll(ctx, t.deletions(p, deadline, batches, true)) {
		results[i] = withdrawn(reply, batches[i].IDs)
		results[i].Err = t.undeleted(batches[i].Shard, results[i].Err)
	}
	return results
}

// withdrawn reads what the script delete found of tasks, and the time.
func withdrawn(reply luascript.Reply, ids []string) (w Withdrawal) {
	_, rest, err := answer(reply)
	if err != nil && !errors.Is(err, task.ErrReplicas) {
		return Withdrawal{Err: err}
	}
	w.There, w.Other = make([]bool, len(ids)), make([]bool, len(ids))
	for i := range ids {
		found := rest.Int()
		w.There[i], w.Other[i] = found == 1, found == 2
	}
	w.At = rest.Int()
	w.Left = readLeft(rest, len(ids), func(i int) string { return ids[i] })
	w.Err = cmp.Or(rest.Err(), err)
	return w
}

func (t *Topic) deletions(p Placement, deadline int64, batches []Deletion, cancel bool) []luascript.Call {
	calls, placement := make([]luascript.Call, len(batches)), p.String()
	for i, b := range batches {
		s := t.Shard(b.Shard)
		calls[i] = luascript.Call{Script: "delete", Keys: s.taskKeys(), Deadline: deadline, ReplicasKey: s.fence(),
			Args: append([]any{placement, luascript.DeadlineArg{}, b.Handled, b.Term.String(), cancel, b.Group}, anys(b.IDs)...)}
	}
	return calls
}

func (t *Topic) undeleted(shard int, err error) error {
	return wrapIf(err, "delete from shard %d of topic %s", shard, t.name)
}

// runFailed sends failed calls of a pipeline again, one by one, because a pipeline
// doesn't retry a call that Redis refuses for a moment. It stops at the first that fails
// again; the others keep their errors.
func (s *Store) runFailed(ctx context.Context, calls []luascript.Call, replies []luascript.Reply) {
	for i, reply := range replies {
		if err := reply.Err(); err == nil || errors.Is(err, task.ErrReplicas) {
			continue
		}
		replies[i] = s.scripts.Run(ctx, calls[i])
		if replies[i].Err() != nil {
			return
		}
	}
}
