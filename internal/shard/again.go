package shard

import (
	"context"
	"fmt"
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

// kept is the stored record that stays in place of the one to be stored. Its op is "" if
// the record can't be read.
type kept struct {
	due, scheduled int64 // ms
	op             string
}

// Requeue stores a task for its consumer and reports whether it did. A task that was put,
// moved, replayed or stored by its consumer after the delivery stays as it is. One
// exception is a task that a consumer stored after the delivery of an older version.
// Again replaces it: that chain is superseded, and nothing else would retry this task.
func (r *Router) Requeue(ctx context.Context, a Requeue) (stored bool, err error) {
	replace := ""
	if a.Op == "" {
		a.Op = NewOp()
	}
	for range maxRestarts {
		var stays *kept
		err = r.retry(ctx, func(p Placement) error {
			var err error
			stays, err = r.again(ctx, p, replace, a)
			return err
		})
		if err == nil && stays != nil && stays.op != "" {
			var older bool
			if older, err = r.older(ctx, a, *stays); err == nil && older {
				replace = stays.op
				continue
			}
		}
		if err != nil {
			return false, fmt.Errorf("store task %q of topic %s again: %w", a.ID, r.name, err)
		}
		return stays == nil, nil
	}
	return false, nil
}

// older reports whether a stored record follows an older version than a's delivery does.
func (r *Router) older(ctx context.Context, a Requeue, there kept) (bool, error) {
	args := []any{a.Due, a.Scheduled, there.due, there.scheduled}
	n, err := r.run(ctx, call{script: "older", keys: r.historyKeys(a.ID), args: args}).Int()
	return n == 1, wrapIf(err, "look up the delivery history")
}

// again keeps to the order of a put: while the task is moving, its old shard sees the
// placement first and loses its copy last. A copy there that was stored after the
// delivery stays, unless the new shard has had the task already.
func (r *Router) again(ctx context.Context, p Placement, replace string, a Requeue) (stays *kept, err error) {
	if !p.Moving(a.ID) {
		return r.sendAgain(ctx, p, replace, nil, a)
	}
	there, err := r.Shard(p.Old(a.ID)).Fence(ctx, p, a.ID)
	if err != nil {
		return nil, err
	}
	var since *kept
	if old := there[0]; old != nil {
		if old.Op == string(a.Op) {
			return nil, nil // stored before the change began; a mover brings it along
		}
		newer := old.Due.UnixMilli() > a.Due || old.Due.UnixMilli() == a.Due && old.Attempt < a.Attempt
		if newer && old.Op != replace {
			since = &kept{old.Due.UnixMilli(), old.Scheduled.UnixMilli(), old.Op}
		}
	}
	stays, err = r.sendAgain(ctx, p, replace, since, a)
	if err != nil || stays != nil {
		return stays, err
	}
	return nil, r.closeOld(ctx, p, Names{p.Old(a.ID), []string{a.ID}})[0]
}

func (r *Router) sendAgain(ctx context.Context, p Placement, replace string, since *kept, a Requeue) (stays *kept,
	err error) {
	notAfter, err := r.NotAfter(ctx)
	if err != nil {
		return nil, err
	}
	var next any = a.Next
	if a.Park {
		next = "park"
	}
	at := p.New(a.ID)
	args := []any{
		p.String(), string(a.Op), notAfter, a.ID, a.Due, a.Attempt, next, a.Attempts, a.Scheduled,
		oneIf(p.Moving(a.ID)), Release{Reason: a.Reason}.reason(), replace, oneIf(since != nil), a.Body,
	}
	again := call{script: "again", keys: r.Shard(at).taskKeys(r.Shard(at).Wake()), args: args, notAfter: 2,
		fence: r.Shard(at).fence()}
	status, rest, err := answer(r.run(ctx, again))
	switch {
	case err != nil:
		return nil, fmt.Errorf("shard %d: %w", at, err)
	case status == "ok":
		return nil, nil
	case status == "old":
		return since, nil
	}
	stays = &kept{}
	if len(rest) == 3 {
		stays.due, _ = rest[0].(int64)
		stays.scheduled, _ = rest[1].(int64)
		stays.op, _ = rest[2].(string)
	}
	return stays, nil
}
