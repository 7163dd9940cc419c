package producer

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/duefleet/duefleet/task"
)

// CancelGroup cancels all stored tasks of a group, in any state, and returns how many these
// were. It reads the group and not the topic. Each task is checked and removed in one step, with
// the promises of Cancel, also while the shard count changes. A task that Schedule puts into the
// group during the call may stay. So may one that a queue or a handler has: Cancel reaches it by
// its ID.
//
// Errors; the count is valid with each of them:
//   - *task.RuleError: the input breaks a rule.
//   - task.ErrUnknownTopic.
//   - task.ErrUnavailable, task.ErrUncertain: call again.
//   - An error of Redis: the first one. The other tasks were cancelled.
func (c *Client) CancelGroup(ctx context.Context, topic, group string) (int64, error) {
	if _, err := inGroup(topic, group); err != nil {
		return 0, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := within(ctx, c, task.ErrUncertain, c.routers.Topic(topic).CancelGroup, group)
	if err != nil {
		err = fmt.Errorf("cancel group of topic %s: %w", topic, err)
	}
	return n, err
}

// RescheduleGroup gives all waiting and retrying tasks of a group the due time when, and
// returns how many these were. It moves the next run of a recurring task. To move each task by
// the same duration, use ShiftMatching with Matching.Group.
//
// It is RescheduleMatching with Matching.Group, and has its errors. Config.Timeout limits it.
func (c *Client) RescheduleGroup(ctx context.Context, topic, group string, when When) (int64, error) {
	m, err := inGroup(topic, group)
	if err != nil {
		return 0, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := c.RescheduleMatching(ctx, m, when)
	return n.Changed, err
}

// ListGroup yields all stored tasks of a group. It is List with Filter.Group.
func (c *Client) ListGroup(ctx context.Context, topic, group string) iter.Seq2[Stored, error] {
	if _, err := inGroup(topic, group); err != nil {
		return func(yield func(Stored, error) bool) { yield(Stored{}, err) }
	}
	return c.List(ctx, topic, Filter{Group: group})
}

// inGroup selects a group, which must be given.
func inGroup(topic, group string) (Matching, error) {
	if group == "" {
		return Matching{}, &task.RuleError{Field: "group", Rule: "must be 1 to 255 bytes", Got: "0 bytes"}
	}
	return Matching{Topic: topic, Group: group}, cmp.Or(task.CheckTopic(topic), task.CheckGroup(group))
}
