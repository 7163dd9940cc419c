package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// cancelAtOnce is how many tasks CancelMany handles before it starts the next ones.
	cancelAtOnce = 1000
	// cancelIDs and cancelBytes limit what one script removes. The script reads the
	// records, and must not block Redis for more than a few milliseconds.
	cancelIDs   = 100
	cancelBytes = 16 << 20
)

// Cancel removes a task in any state, or returns task.ErrNotFound, perhaps with ErrRepeated.
// It deletes from the old shard, then from the new one, which notes the ID. A consumer may
// have an older version of the task, in a handler or in its queue. So Cancel leaves it a note,
// and also removes what the consumer stored before it could see the note.
func (r *Router) Cancel(ctx context.Context, id string) error {
	return r.cancel(ctx, []string{id}, 1, "")[0]
}

// CancelMany cancels tasks as Cancel does, with a few round trips for each 1000 of them.
// The errors are in the order of the IDs. maxPayload is the largest payload, in bytes; it
// decides how many tasks a script removes. If Redis can't be reached or doesn't answer,
// CancelMany doesn't start the remaining thousands: they get task.ErrUnavailable.
func (r *Router) CancelMany(ctx context.Context, ids []string, maxPayload int) []error {
	return r.CancelInGroup(ctx, ids, "", maxPayload)
}

// CancelInGroup is CancelMany for those tasks that are in a group; "" means all. It decides in
// the step that removes the task. Others stay, and get task.ErrNotFound.
func (r *Router) CancelInGroup(ctx context.Context, ids []string, group string, maxPayload int) []error {
	perScript := max(1, min(cancelIDs, cancelBytes/max(maxPayload, 1)))
	errs := make([]error, 0, len(ids))
	var away error
	for some := range slices.Chunk(ids, cancelAtOnce) {
		if away != nil {
			errs = append(errs, slices.Repeat([]error{away}, len(some))...)
			continue
		}
		now := r.cancel(ctx, some, perScript, group)
		if at := slices.IndexFunc(now, unreached); at >= 0 {
			away = notBegun(now[at])
		}
		errs = append(errs, now...)
	}
	return errs
}

// unreached reports whether Redis couldn't be reached or didn't answer.
func unreached(err error) bool {
	return errors.Is(err, task.ErrUnavailable) || errors.Is(err, task.ErrUncertain)
}

// cancelling is a running cancel of several tasks, which are named by their indexes.
type cancelling struct {
	router    *Router
	ids       []string
	perScript int
	group     string // of the tasks; "": any
	tasks     []cancelled
	went      []shard.Member // versions in groups that are removed
}

// cancelled has the findings of all tries about one task.
type cancelled struct {
	found bool
	other bool  // the shard that was asked last has a version outside the group.
	at    int64 // the time in ms, by the clock of its new shard.
	begun bool  // the cancel is partly done
	noted bool  // for the consumers
	err   error
}

// shardOf is Placement.Old or Placement.New.
type shardOf func(p shard.Placement, id string) int

func (r *Router) cancel(ctx context.Context, ids []string, perScript int, group string) []error {
	ctx, probation := luascript.OnProbation(ctx)
	c := cancelling{router: r, ids: ids, perScript: perScript, group: group, tasks: make([]cancelled, len(ids))}
	all := upTo(len(ids))
	c.remove(ctx, all)
	c.remove(ctx, c.noteCancels(ctx, c.meant(all)))
	_ = r.topic.Leave(ctx, c.went) // a sweep removes what stays
	errs := make([]error, len(ids))
	for i, t := range c.tasks {
		switch {
		case t.err == nil && !t.found && probation.CarriedOut(): // an earlier copy may have found it
			errs[i] = repeated(task.ErrNotFound)
		case t.err == nil && !t.found:
			errs[i] = task.ErrNotFound
		case t.begun:
			errs[i] = luascript.PartlyDone(t.err)
		default:
			errs[i] = probation.Judge(t.err)
		}
		if t.err != nil && t.found {
			errs[i] = fmt.Errorf("%w, but: %w", ErrRemoved, errs[i])
		}
	}
	return errs
}

// good returns the tasks of a list that have no error.
func (c *cancelling) good(of []int) (good []int) {
	for _, i := range of {
		if c.tasks[i].err == nil {
			good = append(good, i)
		}
	}
	return good
}

// meant returns the tasks of a list that have no error, and for a group those that were in it.
func (c *cancelling) meant(of []int) (meant []int) {
	for _, i := range c.good(of) {
		if c.group == "" || c.tasks[i].found {
			meant = append(meant, i)
		}
	}
	return meant
}

// remove deletes tasks from all shards they may be in.
func (c *cancelling) remove(ctx context.Context, todo []int) {
	if len(todo) == 0 {
		return
	}
	t := tries{router: c.router}
	for t.next(ctx) {
		todo, t.err = c.attempt(ctx, t.placement, todo)
	}
	c.fail(todo, t.err)
}

// attempt deletes tasks under one placement. It deletes moving tasks from their old
// shards first. It returns the tasks to delete again under a newer placement, and the
// refusal.
func (c *cancelling) attempt(ctx context.Context, p shard.Placement, todo []int) (again []int, refusal error) {
	moving := slices.DeleteFunc(slices.Clone(todo), func(i int) bool { return !p.Moving(c.ids[i]) })
	again, refusal = c.withdraw(ctx, p, moving, shard.Placement.Old)
	if refusal != nil && !outdated(refusal) {
		return todo, refusal
	}
	more, err := c.withdraw(ctx, p, without(c.good(todo), again), shard.Placement.New)
	if err != nil {
		refusal = err
	}
	return append(again, more...), refusal
}

// withdraw deletes each task from one shard. A new shard notes the IDs of moving tasks, so
// that no mover restores them.
func (c *cancelling) withdraw(ctx context.Context, p shard.Placement, todo []int,
	of shardOf) (again []int, refusal error) {
	if len(todo) == 0 {
		return nil, nil
	}
	deadline, err := c.router.scripts.Deadline(ctx)
	if err != nil {
		return todo, err
	}
	batches := group(todo, c.perScript, func(i int) batchKey {
		at := of(p, c.ids[i])
		taken := p.Moving(c.ids[i]) && at == p.New(c.ids[i])
		if c.group != "" { // the old shard may have another task of the ID, for a mover
			taken = taken && c.tasks[i].found && !c.tasks[i].other
		}
		return batchKey{shard: at, moving: taken}
	}, func(int) int { return 0 })
	deletions := make([]shard.Deletion, len(batches))
	for n, b := range batches {
		deletions[n] = shard.Deletion{Names: b.names(func(i int) string { return c.ids[i] }), Handled: b.key.moving,
			Term: c.router.term, Group: c.group}
	}
	for n, w := range c.router.topic.Withdraw(ctx, p, deadline, deletions) {
		b := batches[n]
		switch {
		case outdated(w.Err):
			again, refusal = append(again, b.entries...), w.Err
			continue
		case w.Err != nil:
			c.fail(b.entries, w.Err)
		}
		if w.There == nil {
			continue
		}
		c.went = append(c.went, w.Left...)
		for j, i := range b.entries { // with task.ErrReplicas too
			c.tasks[i].add(w.There[j], w.Other[j], w.At)
		}
	}
	return again, refusal
}

// add notes what a delete found. The last shard's time counts, the new shard's: a version
// that is put there later counts as scheduled no earlier.
// other: this shard has a version in another group, which is the newer one.
func (c *cancelled) add(there, other bool, at int64) {
	if other && !c.noted {
		c.found = false
	} else if there {
		c.found = true
	}
	c.other, c.at, c.begun = other, at, true
}

// noteCancels notes the cancels in the delivery histories, for the consumers. It returns the tasks that
// consumers may have stored again before they could see the note.
func (c *cancelling) noteCancels(ctx context.Context, todo []int) (again []int) {
	if len(todo) == 0 {
		return nil
	}
	ids, at := make([]string, len(todo)), make([]int64, len(todo))
	for n, i := range todo {
		ids[n], at[n] = c.ids[i], c.tasks[i].at
		c.tasks[i].noted = true
	}
	for n, noted := range c.router.topic.NoteCancelled(ctx, ids, at) {
		c.fail(todo[n:n+1], noted.Err)
		if noted.Delivered && noted.Err == nil {
			again = append(again, todo[n])
		}
	}
	return again
}

func (c *cancelling) fail(of []int, err error) {
	for _, i := range of {
		c.tasks[i].err = err
	}
}
