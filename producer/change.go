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

// Cancel removes a task in whatever state. Once it returned without an error no
// later claim delivers it; a message that is on its way to RabbitMQ at this
// moment may still arrive.
//
// Errors: task.ErrNotFound if it is not stored: delivered, cancelled before or
// never scheduled. After a lost connection, also if this very call removed it.
func (c *Client) Cancel(ctx context.Context, topic, id string) error {
	if err := checkName(topic, id); err != nil {
		return err
	}
	t := c.topic(topic)
	found := false
	remove := func(at int, p shard.Placement, ledger bool) error {
		notAfter, err := t.NotAfter(ctx)
		if err != nil {
			return err
		}
		there, err := t.Delete(ctx, at, p, notAfter, ledger, id)
		found = found || err == nil && there[0]
		return err
	}
	err := t.retry(ctx, func(p shard.Placement) error {
		if p.Split(id) {
			if err := remove(p.Old(id), p, false); err != nil {
				return err
			}
		}
		return remove(p.New(id), p, p.Split(id))
	})
	if err == nil && !found {
		err = task.ErrNotFound
	}
	return named(topic, id, err)
}

// Reschedule gives a stored task a new due time, keeping the rest, and answers
// it by Redis's clock. Attempts are counted anew; a parked task waits again.
//
// Errors: task.ErrNotFound if it is not stored.
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
	var millis int64
	err = t.retry(ctx, func(p shard.Placement) error {
		millis, err = t.reschedule(ctx, p, move)
		return err
	})
	if err != nil {
		return time.Time{}, named(topic, id, err)
	}
	return fromMillis(millis), nil
}

func (t *topic) reschedule(ctx context.Context, p shard.Placement, m shard.Move) (int64, error) {
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
		return 0, err
	}
	if closing := t.deleteOld(ctx, old, p, m.ID); closing != nil {
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
	err := t.retry(ctx, func(p shard.Placement) error {
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
