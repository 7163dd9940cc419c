package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func checkName(topic, id string) error {
	return first(task.CheckTopic(topic), task.CheckID(id))
}

// named says which task an error is about.
func named(topic, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("topic %s, ID %q: %w", topic, id, err)
}

// Cancel removes a task in whatever state. Once it returned without an error, or
// with task.ErrNotFound, no later claim delivers it, and no consumer of package
// consumer that has it now brings it back; a message that is on its way to
// RabbitMQ at this moment may still arrive.
//
// Errors: task.ErrNotFound if it is not stored: delivered, cancelled before or
// never scheduled. After a lost connection, also if this very call removed it.
func (c *Client) Cancel(ctx context.Context, topic, id string) error {
	if err := checkName(topic, id); err != nil {
		return err
	}
	t := c.topic(topic)
	gone, err := remove(ctx, t, id)
	if err == nil && (gone.Past || gone.Tried || !gone.There) {
		err = tellConsumers(ctx, t, id, &gone)
	}
	if err == nil && !gone.There {
		err = task.ErrNotFound
	}
	return named(topic, id, err)
}

// tellConsumers notes the cancel of a task that one of them may have, and removes
// what it stored before it could see the note.
func tellConsumers(ctx context.Context, t *shard.Caller, id string, gone *shard.Withdrawn) error {
	if err := t.NoteCancelled(ctx, id, gone.At); err != nil {
		return err
	}
	more, err := remove(ctx, t, id)
	gone.There = gone.There || more.There
	return err
}

// remove deletes a task wherever it lies.
func remove(ctx context.Context, t *shard.Caller, id string) (gone shard.Withdrawn, err error) {
	at := func(s int, p shard.Placement, ledger bool) error {
		notAfter, err := t.NotAfter(ctx)
		if err != nil {
			return err
		}
		r, err := t.Withdraw(ctx, s, p, notAfter, ledger, id)
		gone.There, gone.Tried = gone.There || r.There, gone.Tried || r.Tried
		gone.Past, gone.At = gone.Past || r.Past, max(gone.At, r.At)
		return err
	}
	err = t.Retry(ctx, func(p shard.Placement) error {
		if p.Split(id) {
			if err := at(p.Old(id), p, false); err != nil {
				return err
			}
		}
		return at(p.New(id), p, p.Split(id))
	})
	return gone, err
}

// Reschedule gives a stored task a new due time, keeping the rest, and answers
// it by Redis's clock. Attempts are counted anew; a parked task waits again.
//
// Errors: task.ErrNotFound if it is not stored; with Config.MinReplicas
// task.ErrReplicas, beside the due time if the master has that. If a consumer of package consumer
// has it then, and its handler fails, it is tried again at the time asked for.
func (c *Client) Reschedule(ctx context.Context, topic, id string, when When) (due time.Time, err error) {
	now, err := c.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := first(checkName(topic, id), task.CheckDue(when.when.Time(now), now)); err != nil {
		return time.Time{}, err
	}
	t := c.topic(topic)
	move := shard.Move{Op: shard.NewOp(), ID: id, When: when.when}
	millis, err := reschedule(ctx, t, move)
	if errors.Is(err, task.ErrNotFound) {
		if err := t.NoteMoved(ctx, id, now.UnixMilli(), when.when.Time(now).UnixMilli()); err != nil {
			return time.Time{}, named(topic, id, err)
		}
		millis, err = reschedule(ctx, t, move) // its consumer may have stored it before it could see the note
	}
	if millis > 0 { // with task.ErrReplicas too
		due = fromMillis(millis)
	}
	return due, named(topic, id, err)
}

func reschedule(ctx context.Context, t *shard.Caller, m shard.Move) (millis int64, err error) {
	err = t.Retry(ctx, func(p shard.Placement) error {
		var err error
		millis, err = rescheduleUnder(ctx, t, p, m)
		return err
	})
	return millis, err
}

func rescheduleUnder(ctx context.Context, t *shard.Caller, p shard.Placement, m shard.Move) (int64, error) {
	notAfter, err := t.NotAfter(ctx)
	if err != nil {
		return 0, err
	}
	if !p.Split(m.ID) {
		return t.Reschedule(ctx, p.New(m.ID), p, notAfter, m)
	}
	old := p.Old(m.ID)
	there, err := t.Touch(ctx, old, p, m.ID)
	if err != nil {
		return 0, err
	}
	if there[0] != nil && there[0].Op == string(m.Op) {
		return there[0].Due.UnixMilli(), nil // done before the change began; a mover brings it along
	}
	m.Split, m.Fallback = true, there[0]
	due, err := t.Reschedule(ctx, p.New(m.ID), p, notAfter, m)
	gone := errors.Is(err, task.ErrNotFound)
	if err != nil && !gone || gone && m.Fallback == nil {
		return due, err
	}
	closing := t.DeleteOld(ctx, p, shard.Names{Shard: old, IDs: []string{m.ID}})[0]
	switch {
	case errors.Is(closing, task.ErrReplicas):
		return due, closing
	case closing != nil:
		return 0, closing
	}
	return due, err
}

// Stored is a task as it is stored.
type Stored struct {
	task.Task
	// State it is in.
	State task.State
	// NextAttempt is when it is to be tried, or its lease ends; zero if parked.
	NextAttempt time.Time
	// Reason why the last attempt failed, as far as one did.
	Reason string
}

// Get reads a task. Attempt counts the next one. Errors: task.ErrNotFound if it
// is not stored.
func (c *Client) Get(ctx context.Context, topic, id string) (Stored, error) {
	if err := checkName(topic, id); err != nil {
		return Stored{}, err
	}
	t := c.topic(topic)
	var s shard.Stored
	err := t.Retry(ctx, func(p shard.Placement) error {
		var err error
		if p.Split(id) {
			s, err = t.Read(ctx, p.Old(id), p, id)
			if !errors.Is(err, task.ErrNotFound) {
				return err
			}
		}
		s, err = t.Read(ctx, p.New(id), p, id)
		return err
	})
	if err != nil {
		return Stored{}, named(topic, id, err)
	}
	return Stored{Task: s.Task, State: s.State, NextAttempt: s.Next, Reason: s.Reason}, nil
}
