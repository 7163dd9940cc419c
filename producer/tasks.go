package producer

import (
	"context"
	"fmt"
	"iter"
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
// task.ErrUnavailable and task.ErrUncertain as from Schedule.
func (c *Client) Cancel(ctx context.Context, topic, id string) (err error) {
	defer c.metrics.begin(verbCancel).end(&err)
	if err := checkName(topic, id); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err = writes(ctx, c, func() (none struct{}, err error) { return none, c.store.Router(topic).Cancel(ctx, id) })
	return named(topic, id, err)
}

// Reschedule gives a stored task a new due time, keeping the rest, and returns
// it by Redis's clock. Attempts are counted anew; a parked task waits again.
//
// Errors: task.ErrNotFound if it is not stored: delivered, cancelled or never scheduled;
// task.ErrUnavailable and task.ErrUncertain as from Schedule; with Config.MinReplicas
// task.ErrReplicas, beside the due time if the master has that. If a consumer of package consumer
// has it then, and its handler fails, it is tried again at the time asked for.
func (c *Client) Reschedule(ctx context.Context, topic, id string, when When) (due time.Time, err error) {
	defer c.metrics.begin(verbReschedule).end(&err)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	now, err := c.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := first(checkName(topic, id), task.CheckWhen(when, now)); err != nil {
		return time.Time{}, err
	}
	millis, err := writes(ctx, c, func() (int64, error) {
		return c.store.Router(topic).Reschedule(ctx, id,
			shard.WhenOf(when))
	})
	if millis > 0 { // with task.ErrReplicas too
		due = fromMillis(millis)
	}
	return due, named(topic, id, err)
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

// Get reads a task. Attempt counts the next one. Errors: task.ErrNotFound if it is not
// stored: delivered, cancelled or never scheduled; task.ErrUnavailable.
func (c *Client) Get(ctx context.Context, topic, id string) (stored Stored, err error) {
	defer c.metrics.begin(verbGet).end(&err)
	if err := checkName(topic, id); err != nil {
		return Stored{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := reads(ctx, c, func() (shard.Stored, error) { return c.store.Router(topic).Get(ctx, id) })
	if err != nil {
		return Stored{}, named(topic, id, err)
	}
	return newStored(s), nil
}

// IDs yields the ID of every stored task of a topic that begins with prefix, in no order:
// of each that stays stored from the first call to the last, and none twice, also while
// the shard count changes. It reads a page at a time, holds up nobody, and remembers 8
// bytes for each ID. An error is the last thing that it yields.
//
// Errors: task.ErrUnknownTopic, or Redis's: a user with the rights of deploy/redis needs
// ZSCAN for it.
func (c *Client) IDs(ctx context.Context, topic, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := task.CheckTopic(topic)
		ended := false
		if err == nil {
			err = c.store.Topic(topic).EachID(ctx, prefix, func(id string) bool {
				ended = !yield(id, nil)
				return !ended
			})
		}
		if err != nil && !ended {
			yield("", err)
		}
	}
}
