package producer

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// ErrRepeated comes with task.ErrNotFound and task.ErrExists: the call was sent to Redis again after
// a lost reply. The first copy may have taken effect. A call for several tasks returns it for each
// that has one of these errors.
var ErrRepeated = router.ErrRepeated

func checkName(topic, id string) error {
	return cmp.Or(task.CheckTopic(topic), task.CheckID(id))
}

// named adds topic and ID to an error.
func named(topic, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("topic %s, ID %q: %w", topic, id, err)
}

// Cancel removes a task in any state. After it returned nil or task.ErrNotFound, no later
// claim delivers the task. Package consumer calls no handler for a message of it that waits
// in a queue, and stores no retry or next step of it. A handler that has the task now isn't
// interrupted. Other consumers, and ones without a memory, may still get a message.
//
// Errors:
//   - task.ErrNotFound: the task isn't stored. It was delivered, cancelled or never scheduled.
//     Or this call removed it, and sent the request again after a lost reply. The error is then
//     ErrRepeated too.
//   - task.ErrReplicas: only with Config.MinReplicas. The error's text says whether the master
//     has removed the task. Call again: task.ErrNotFound then says that it stays removed.
//   - task.ErrUnavailable and task.ErrUncertain as from Schedule.
func (c *Client) Cancel(ctx context.Context, topic, id string) (err error) {
	defer c.metrics.begin(verbCancel).end(&err)
	if err := checkName(topic, id); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err = within(ctx, c, task.ErrUncertain, func(ctx context.Context, id string) (none struct{}, err error) {
		return none, c.routers.Topic(topic).Cancel(ctx, id)
	}, id)
	return named(topic, id, err)
}

// Reschedule gives a stored task a new due time and returns that time by Redis's clock. The
// rest of the task stays. Attempts count from 1 again, and a parked task waits again.
//
// A call that returns task.ErrNotFound changes nothing: neither a retry nor a next step of a
// consumer that has the task. An exception is ErrRepeated.
//
// Errors:
//   - task.ErrNotFound: the task isn't stored. It was delivered, cancelled or never scheduled.
//     Or this call moved it, and sent the request again after a lost reply. In the meantime the
//     task was delivered or cancelled. The error is then ErrRepeated too.
//   - task.ErrUnavailable and task.ErrUncertain as from Schedule.
//   - task.ErrReplicas: only with Config.MinReplicas. The due time is returned too, if the
//     master stored it.
func (c *Client) Reschedule(ctx context.Context, topic, id string, when When) (due time.Time, err error) {
	defer c.metrics.begin(verbReschedule).end(&err)
	if err := cmp.Or(checkName(topic, id), when.Check()); err != nil {
		return time.Time{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	now, err := c.now(ctx)
	if err == nil {
		err = task.CheckWhen(when, now)
	}
	if err != nil {
		return time.Time{}, err
	}
	millis, err := within(ctx, c, task.ErrUncertain, func(ctx context.Context, id string) (int64, error) {
		return c.routers.Topic(topic).Reschedule(ctx, id, when)
	}, id)
	if millis > 0 { // with task.ErrReplicas too
		due = fromMillis(millis)
	}
	return due, named(topic, id, err)
}

// Stored is a task as it is stored.
type Stored struct {
	task.Task
	// State of the task.
	State task.State
	// NextAttempt is when a waiting task is tried next, or when the lease of a leased task
	// ends. It is zero for a parked task.
	NextAttempt time.Time
	// Reason why the last attempt failed, or why the task was parked. Defaults to none.
	Reason string
}

// Get reads a task. Its Attempt is the number of the next attempt.
//
// Errors:
//   - task.ErrNotFound: the task isn't stored. It was delivered, cancelled or never scheduled.
//   - task.ErrUnavailable.
func (c *Client) Get(ctx context.Context, topic, id string) (stored Stored, err error) {
	defer c.metrics.begin(verbGet).end(&err)
	if err := checkName(topic, id); err != nil {
		return Stored{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := within(ctx, c, task.ErrUnavailable, c.routers.Topic(topic).Get, id)
	if err != nil {
		return Stored{}, named(topic, id, err)
	}
	return newStored(s), nil
}

// History returns the last events of a task, in order, if the topic's setting history keeps
// them. The task need not be stored any more. It returns none for an ID that it doesn't know.
// An event of an ID that changes often may be missing: the last KiB of each hour stays, about
// seventy events. The clocks of several Redis servers decide the order of their events.
//
// Errors: task.ErrUnavailable. The user in Redis needs the rights to events and to HGETALL, as
// in deploy/redis/producer.acl.
func (c *Client) History(ctx context.Context, topic, id string) (events []task.Event, err error) {
	defer c.metrics.begin(verbHistory).end(&err)
	if err := checkName(topic, id); err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	events, err = within(ctx, c, task.ErrUnavailable, c.store.Topic(topic).Events, id)
	return events, named(topic, id, err)
}

// Topics returns the names of all topics, sorted: those that a scanner serves or has served.
// A topic is among them until `scanner topic rm` has removed it.
//
// Errors are task.ErrUnavailable or an error of Redis. The user in Redis needs the right to
// SMEMBERS, as in deploy/redis/producer.acl.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return within(ctx, c, task.ErrUnavailable, func(ctx context.Context, s *shard.Store) ([]string, error) {
		names, err := s.Registry().Topics(ctx)
		return names, luascript.Unasked(err)
	}, c.store)
}

// IDs yields the IDs of a topic's stored tasks that begin with prefix, each once, in no
// order. It yields every task that stays stored until IDs ends, also while the shard count
// changes. It reads one page at a time and keeps 8 bytes of memory for each ID.
// Config.Timeout doesn't limit it.
//
// An error ends IDs: task.ErrUnknownTopic, or an error of Redis. The user in Redis needs
// the right to ZSCAN, as in deploy/redis/producer.acl.
func (c *Client) IDs(ctx context.Context, topic, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := task.CheckTopic(topic); err != nil {
			yield("", err)
			return
		}
		for s, err := range c.store.Topic(topic).Listing(shard.Wanted{Prefix: prefix, IDs: true}).All(ctx) {
			if !yield(s.ID, err) {
				return
			}
		}
	}
}
