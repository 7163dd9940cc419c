package shard

import (
	"context"
	"fmt"
)

// Again is a task that its consumer, who has a delivery of it, stores again.
type Again struct {
	ID string
	// Due in ms and Attempt are of the delivery: what was stored since stays.
	Due     int64
	Attempt int
	// Next is when it is due again, in ms, after Due. Park parks it instead.
	Next int64
	Park bool
	// Attempts it has had, which the next one counts on from.
	Attempts int
	// Scheduled in ms, as the delivery had it: it is no new version.
	Scheduled int64
	// Reason of the failure; "" if there was none.
	Reason string
	Body   []byte
}

// Again stores a task for its consumer and answers whether it did: one that was
// put, moved, replayed or stored by its consumer since the delivery stays as it
// is.
func (c *Caller) Again(ctx context.Context, a Again) (stored bool, err error) {
	op := NewOp()
	err = c.Retry(ctx, func(p Placement) error {
		var err error
		stored, err = c.again(ctx, p, op, a)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store task %q of topic %s again: %w", a.ID, c.name, err)
	}
	return stored, nil
}

// again goes the way of a put: while the task is moving house, its old shard sees
// the placement first and loses its copy last.
func (c *Caller) again(ctx context.Context, p Placement, op Op, a Again) (stored bool, err error) {
	split := p.Split(a.ID)
	if split {
		there, err := c.Touch(ctx, p.Old(a.ID), p, a.ID)
		if err != nil {
			return false, err
		}
		if r := there[0]; r != nil {
			if r.Op == string(op) {
				return true, nil // done before the change began; a mover brings it along
			}
			if due := r.Due.UnixMilli(); due > a.Due || due == a.Due && r.Attempt < a.Attempt {
				return false, nil
			}
		}
	}
	stored, err = c.sendAgain(ctx, p, op, a)
	if err != nil || !split || !stored {
		return stored, err
	}
	return true, c.DeleteOld(ctx, p, Names{p.Old(a.ID), []string{a.ID}})[0]
}

func (c *Caller) sendAgain(ctx context.Context, p Placement, op Op, a Again) (stored bool, err error) {
	notAfter, err := c.NotAfter(ctx)
	if err != nil {
		return false, err
	}
	var next any = a.Next
	if a.Park {
		next = "park"
	}
	at := p.New(a.ID)
	args := []any{
		p.String(), string(op), notAfter, a.ID, a.Due, a.Attempt, next, a.Attempts, a.Scheduled,
		oneIf(p.Split(a.ID)), Release{Reason: a.Reason}.reason(), a.Body,
	}
	again := call{script: "again", keys: c.taskKeys(at, c.Wake(at)), args: args, notAfter: 2, gate: c.gate(at)}
	status, _, err := answer(c.run(ctx, again))
	if err != nil {
		return false, fmt.Errorf("shard %d: %w", at, err)
	}
	return status == "ok", nil
}
