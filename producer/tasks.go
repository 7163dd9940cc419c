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

// Cancel removes a task in any state. After it returned nil or task.ErrNotFound, no later
// claim delivers the task, and no consumer of package consumer that has it now brings it
// back. A message that is on its way to RabbitMQ at this moment may still arrive.
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
	_, err = writes(ctx, c, func() (none struct{}, err error) { return none, c.routers.Topic(topic).Cancel(ctx, id) })
	return named(topic, id, err)
}

// Reschedule gives a stored task a new due time and returns that time by Redis's clock. The
// rest of the task stays. Attempts count from 1 again, and a parked task waits again.
//
// A consumer of package consumer may have the task at that moment. If its handler fails,
// the task is tried again at the new time.
//
// Errors:
//   - task.ErrNotFound: the task isn't stored. It was delivered, cancelled or never scheduled;
//   - task.ErrUnavailable and task.ErrUncertain as from Schedule;
//   - task.ErrReplicas with Config.MinReplicas, together with the due time if the master has it.
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
		return c.routers.Topic(topic).Reschedule(ctx, id,
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
	// Reason why the last attempt failed; empty if none failed.
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
	s, err := reads(ctx, c, func() (shard.Stored, error) { return c.routers.Topic(topic).Get(ctx, id) })
	if err != nil {
		return Stored{}, named(topic, id, err)
	}
	return newStored(s), nil
}

// IDs yields the IDs of a topic's stored tasks that begin with prefix, in no order. It
// yields no ID twice, and each task that stays stored from the first call to the last, also
// while the shard count changes. It reads one page at a time and remembers 8 bytes for each
// ID. After an error it stops.
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
