package shard

import (
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
}

// Delete removes batches in one round trip. It returns an error or nil for each.
func (t *Topic) Delete(ctx context.Context, p Placement, deadline int64, batches []Deletion) []error {
	errs := make([]error, len(batches))
	for i, reply := range t.store.scripts.RunAll(ctx, t.deletions(p, deadline, batches)) {
		_, _, err := answer(reply)
		errs[i] = t.undeleted(batches[i].Shard, err)
	}
	return errs
}

// Withdrawn is the result for one task.
type Withdrawn struct {
	// There: the task was stored.
	There bool
	// Tried: a message of it may be out.
	Tried bool
	// History: the ID has a delivery history.
	History bool
	// Err is why History isn't known.
	Err error
}

// Withdrawal is the result for one batch.
type Withdrawal struct {
	// Tasks are in the order of the batch's IDs.
	Tasks []Withdrawn
	// At is the time of the shard's server, in ms.
	At int64
	// Err is for the whole batch: a *MovedError, ErrLate, or Redis's.
	Err error
}

// Withdraw is Delete, and looks in the same round trip which IDs have a delivery history.
func (t *Topic) Withdraw(ctx context.Context, p Placement, deadline int64, batches []Deletion) []Withdrawal {
	calls := t.deletions(p, deadline, batches)
	for _, b := range batches {
		for _, id := range b.IDs {
			calls = append(calls, t.note(id, "", ""))
		}
	}
	replies := t.store.scripts.RunAll(ctx, calls)
	results := make([]Withdrawal, len(batches))
	asks, answers := calls[len(batches):], replies[len(batches):]
	for i, b := range batches {
		n := len(b.IDs)
		r := &results[i]
		if r.Tasks, r.At, r.Err = withdrawn(replies[i], n); r.Err != nil {
			r.Err = t.undeleted(b.Shard, r.Err)
		} else {
			t.histories(ctx, b.IDs, r.Tasks, asks[:n], answers[:n])
		}
		asks, answers = asks[n:], answers[n:]
	}
	return results
}

// withdrawn reads what the script delete found of n tasks, and the time.
func withdrawn(reply luascript.Reply, n int) (tasks []Withdrawn, at int64, err error) {
	_, rest, err := answer(reply)
	if err != nil {
		return nil, 0, err
	}
	tasks = make([]Withdrawn, n)
	for i := range tasks {
		found := rest.Int()
		tasks[i] = Withdrawn{There: found != 0, Tried: found == 2}
	}
	at = rest.Int()
	return tasks, at, rest.Err()
}

// histories sets which tasks have a delivery history.
func (t *Topic) histories(ctx context.Context, ids []string, tasks []Withdrawn, asks []luascript.Call,
	answers []luascript.Reply) {
	t.store.runFailed(ctx, asks, answers)
	for i, id := range ids {
		n, err := answers[i].Int()
		tasks[i].History = n == 1
		tasks[i].Err = wrapIf(err, "look up the delivery history of task %q of topic %s", id, t.name)
	}
}

func (t *Topic) deletions(p Placement, deadline int64, batches []Deletion) []luascript.Call {
	calls, placement := make([]luascript.Call, len(batches)), p.String()
	for i, b := range batches {
		s := t.Shard(b.Shard)
		calls[i] = luascript.Call{Script: "delete", Keys: s.taskKeys(), Deadline: deadline, ReplicasKey: s.fence(),
			Args: append([]any{placement, luascript.DeadlineArg{}, b.Handled}, anys(b.IDs)...)}
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
