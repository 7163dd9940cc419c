package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

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

// CancelMany cancels tasks as Cancel does, with a few round trips for each 1000 of them.
// The errors are in the order of the IDs. maxPayload is the largest payload, in bytes; it
// decides how many tasks a script removes. If Redis can't be reached or doesn't answer,
// CancelMany doesn't start the remaining thousands: they get task.ErrUnavailable.
func (r *Router) CancelMany(ctx context.Context, ids []string, maxPayload int) []error {
	perScript := max(1, min(cancelIDs, cancelBytes/max(maxPayload, 1)))
	errs := make([]error, 0, len(ids))
	var away error
	for some := range slices.Chunk(ids, cancelAtOnce) {
		if away != nil {
			errs = append(errs, slices.Repeat([]error{away}, len(some))...)
			continue
		}
		now := r.cancelSome(ctx, some, perScript)
		if at := slices.IndexFunc(now, unreached); at >= 0 {
			const why = "an earlier task of the same call failed, this one was not begun"
			// %s, not %w: the cause may be ErrUncertain
			away = fmt.Errorf("%w: %s: %s", task.ErrUnavailable, why, now[at].Error())
		}
		errs = append(errs, now...)
	}
	return errs
}

// unreached reports whether Redis couldn't be reached or didn't answer.
func unreached(err error) bool {
	return errors.Is(err, task.ErrUnavailable) || errors.Is(err, task.ErrUncertain)
}

// cancelling is a running cancel of several tasks, which are named by their indexes. For
// each task it keeps the order of steps of Router.cancel.
type cancelling struct {
	*Router
	ids       []string
	perScript int
	gone      []Withdrawn // the findings of all tries
	begun     []bool      // the cancel is partly done
	errs      []error
}

// shardOf is Placement.Old or Placement.New.
type shardOf func(p Placement, id string) int

func (r *Router) cancelSome(ctx context.Context, ids []string, perScript int) []error {
	ctx, doubt := withDoubt(ctx)
	n := len(ids)
	c := cancelling{
		Router: r, ids: ids, perScript: perScript,
		gone: make([]Withdrawn, n), begun: make([]bool, n), errs: make([]error, n),
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	c.remove(ctx, all)
	noted := c.good(all, func(g Withdrawn) bool { return g.History || g.Tried || !g.There })
	c.tell(ctx, noted)
	c.remove(ctx, c.good(noted, nil))
	for i, err := range c.errs {
		switch {
		case err == nil && !c.gone[i].There:
			c.errs[i] = task.ErrNotFound
		case c.begun[i]:
			c.errs[i] = begunDoubt().judge(err)
		default:
			c.errs[i] = doubt.judge(err)
		}
	}
	return c.errs
}

// begunDoubt returns the doubt of an operation that is partly done.
func begunDoubt() *doubt {
	d := &doubt{}
	d.set.Store(true)
	return d
}

// good returns the tasks of a list that have no error and meet a condition; nil means no
// condition.
func (c *cancelling) good(of []int, holds func(g Withdrawn) bool) (good []int) {
	for _, i := range of {
		if c.errs[i] == nil && (holds == nil || holds(c.gone[i])) {
			good = append(good, i)
		}
	}
	return good
}

// remove deletes tasks from all shards they may be in.
func (c *cancelling) remove(ctx context.Context, todo []int) {
	if len(todo) == 0 {
		return
	}
	err := c.retry(ctx, func(p Placement) (refusal error) {
		todo, refusal = c.attempt(ctx, p, todo)
		return refusal
	})
	c.fail(todo, err)
}

// attempt deletes tasks under one placement. It deletes moving tasks from their old
// shards first. It returns the tasks to delete again under a newer placement, and the
// refusal.
func (c *cancelling) attempt(ctx context.Context, p Placement, todo []int) (again []int, refusal error) {
	var moving []int
	for _, i := range todo {
		if p.Moving(c.ids[i]) {
			moving = append(moving, i)
		}
	}
	again, refusal = c.withdraw(ctx, p, moving, Placement.Old)
	if refusal != nil && !c.outdated(refusal) {
		return todo, refusal
	}
	refused := setOf(again)
	rest := slices.DeleteFunc(c.good(todo, nil), func(i int) bool { return refused[i] })
	more, err := c.withdraw(ctx, p, rest, Placement.New)
	if err != nil {
		refusal = err
	}
	return append(again, more...), refusal
}

// withdraw deletes each task from one shard. In the same round trip it looks up whether
// their IDs have a delivery history. A new shard notes the IDs of moving tasks, so that
// no mover restores them.
func (c *cancelling) withdraw(ctx context.Context, p Placement, todo []int, of shardOf) (again []int, refusal error) {
	if len(todo) == 0 {
		return nil, nil
	}
	notAfter, err := c.NotAfter(ctx)
	if err != nil {
		return todo, err
	}
	shares := c.share(p, todo, of)
	calls := make([]call, 0, len(shares)+len(todo))
	for _, sh := range shares {
		calls = append(calls, c.deletion(p, notAfter, sh.moving, c.names(sh)))
	}
	asks := c.asks(todo)
	cmds := c.runAll(ctx, append(calls, asks...))
	for n, sh := range shares {
		_, rest, err := answer(cmds[n])
		if err == nil && len(rest) != len(sh.entries)+1 {
			err = fmt.Errorf("script delete answered %d values for %d tasks", len(rest), len(sh.entries))
		}
		switch {
		case c.outdated(err):
			again, refusal = append(again, sh.entries...), err
		case err != nil:
			c.fail(sh.entries, c.Shard(sh.shard).undeleted(err))
		default:
			c.met(sh.entries, rest)
		}
	}
	c.history(ctx, todo, again, asks, cmds[len(shares):])
	return again, refusal
}

// share groups tasks by shard, in shares of at most perScript tasks. moving is set only
// for a moving task at its new shard.
func (c *cancelling) share(p Placement, todo []int, of shardOf) []*share {
	type key struct {
		shard  int
		moving bool
	}
	open := map[key]*share{}
	var all []*share
	for _, i := range todo {
		id := c.ids[i]
		at := of(p, id)
		k := key{at, p.Moving(id) && at == p.New(id)}
		sh := open[k]
		if sh == nil || len(sh.entries) == c.perScript {
			sh = &share{shard: k.shard, moving: k.moving}
			open[k] = sh
			all = append(all, sh)
		}
		sh.entries = append(sh.entries, i)
	}
	return all
}

func (c *cancelling) names(sh *share) Names {
	n := Names{Shard: sh.shard, IDs: make([]string, len(sh.entries))}
	for j, i := range sh.entries {
		n.IDs[j] = c.ids[i]
	}
	return n
}

// asks returns the calls that look up whether IDs have a delivery history.
func (c *cancelling) asks(todo []int) []call {
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = c.note(c.ids[i], "", "")
	}
	return calls
}

// met records the reply of the script delete for some tasks.
func (c *cancelling) met(of []int, rest []any) {
	at, _ := rest[len(of)].(int64)
	for j, i := range of {
		g := &c.gone[i]
		g.There = g.There || rest[j] != int64(0)
		g.Tried = g.Tried || rest[j] == int64(2)
		g.At = max(g.At, at)
		c.begun[i] = true
	}
}

// history records which of the deleted IDs have a delivery history. A lookup that failed in
// the pipeline is sent once more.
func (c *cancelling) history(ctx context.Context, todo, again []int, asks []call, cmds []*redis.Cmd) {
	refused := setOf(again)
	var deleted []int
	var calls []call
	var answers []*redis.Cmd
	for n, i := range todo {
		if c.errs[i] == nil && !refused[i] {
			deleted, calls, answers = append(deleted, i), append(calls, asks[n]), append(answers, cmds[n])
		}
	}
	c.runFailed(ctx, calls, answers)
	for n, i := range deleted {
		history, err := answers[n].Int()
		if err != nil {
			c.fail([]int{i}, fmt.Errorf("look up the past of task %q of topic %s: %w", c.ids[i], c.name, err))
		}
		c.gone[i].History = c.gone[i].History || history == 1
	}
}

func setOf(of []int) map[int]bool {
	set := make(map[int]bool, len(of))
	for _, i := range of {
		set[i] = true
	}
	return set
}

// tell notes the cancels in the delivery histories, for the consumers.
func (c *cancelling) tell(ctx context.Context, todo []int) {
	if len(todo) == 0 {
		return
	}
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = c.written(c.ids[i], c.gone[i].At, "")
	}
	cmds := c.runAll(ctx, calls)
	c.runFailed(ctx, calls, cmds)
	for n, i := range todo {
		if err := cmds[n].Err(); err != nil {
			c.fail([]int{i}, fmt.Errorf("note the cancel of task %q of topic %s: %w", c.ids[i], c.name, err))
		}
	}
}

func (c *cancelling) fail(of []int, err error) {
	for _, i := range of {
		c.errs[i] = err
	}
}

// runFailed sends failed calls of a pipeline again, one by one, because a pipeline
// doesn't retry a call that Redis refuses for a moment. It stops at the first that fails
// again; the others keep their errors.
func (s *Store) runFailed(ctx context.Context, calls []call, cmds []*redis.Cmd) {
	for i, cmd := range cmds {
		if err := cmd.Err(); err == nil || errors.Is(err, task.ErrReplicas) {
			continue
		}
		cmds[i] = s.run(ctx, calls[i])
		if cmds[i].Err() != nil {
			return
		}
	}
}
