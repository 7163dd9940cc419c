package producer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Retrying is a state of a Matching alone: the task waits for another attempt. The broker
// returned or refused it, or its consumer failed.
const Retrying task.State = "retrying"

// Matching selects stored tasks of one topic for CancelMatching, RunNowMatching,
// RescheduleMatching and ShiftMatching, and says how to change them. Prefix, Group,
// State, DueFrom and DueTo select together: a task must match each one that is set. One of them or All is
// required.
type Matching struct {
	// Topic of the tasks. Required.
	Topic string
	// Prefix of the task's ID. Defaults to any.
	Prefix string
	// Group of the task. With it, the call reads the group's tasks and not the topic. Defaults to any.
	Group string
	// State of the task: task.Waiting, which is for its first attempt here, or Retrying.
	// CancelMatching accepts task.Leased and task.Parked, too. Defaults to any.
	State task.State
	// DueFrom and DueTo bound the due time, both included. For a retry the original due
	// time counts. Default to no bound.
	DueFrom, DueTo time.Time
	// All selects all tasks of the topic. It must not be set together with another
	// selection. Defaults to false, so that an empty Matching changes nothing.
	All bool

	// DryRun changes nothing and counts what would be changed. Defaults to false.
	DryRun bool
	// Limit is the largest number of tasks to change. Defaults to 0: no limit.
	Limit int
	// Rate is the largest number of tasks to change per second. Set it if the tasks would
	// flood consumers. Defaults to 0: no limit.
	Rate int
	// Progress, if not nil, is called before the first change and after each batch of up
	// to 50 tasks. The call waits for it. A dry run doesn't call it.
	Progress func(Matched)
	// Resume is Matched.Resume of an interrupted call. A task that this call moved isn't
	// moved again, unless it was stored again since. Defaults to none.
	Resume string
}

// Matched says how far a change of selected tasks is. Each task that was met is changed,
// skipped or failed, or is in the next batch.
type Matched struct {
	// Met is how many tasks were selected until now.
	Met int64
	// Changed is how many were changed, or in a dry run would be.
	Changed int64
	// Skipped tasks need no change: one that is due already for RunNowMatching, or one
	// that the call with the same Resume moved. Or they may not be changed: only
	// CancelMatching changes leased and parked tasks. Or they were delivered or changed
	// after they were selected.
	Skipped int64
	// Failed tasks can't be read, or Redis refused the change. With task.ErrUncertain they
	// may have been changed.
	Failed int64
	// Resume names the call, in 12 hexadecimal digits.
	Resume string
}

// CancelMatching removes the selected tasks, in any state. Each one is cancelled with the
// promises of Cancel. A task that is stored again during the call may be removed as well.
//
// The call changes batches of up to 50 tasks, one at a time, with pauses for deliveries, also
// while the shard count changes. Config.Timeout doesn't limit it. It may be interrupted: what was changed stays so,
// and the same call goes on with the rest. It holds 8 bytes of memory for each task that it
// looks at.
//
// Errors; the counts are valid with each of them:
//   - *task.RuleError: the input breaks a rule, and nothing was changed.
//   - task.ErrUnknownTopic.
//   - task.ErrUnavailable, task.ErrUncertain: Redis can't be reached, and the call ended.
//   - The error of ctx, or of Redis.
//   - The error of the first task that failed alone. The others were changed.
//   - An error that names shards that can't be read. Tasks of the other shards were changed.
//
// The user in Redis needs the rights in deploy/redis/producer.acl.
func (c *Client) CancelMatching(ctx context.Context, m Matching) (Matched, error) {
	return c.matching(ctx, &m, bulk.Change{Verb: bulk.Cancel},
		task.Waiting, Retrying, task.Leased, task.Parked)
}

// RunNowMatching makes the selected tasks due now. Waiting and retrying tasks keep their
// attempts, reason and first due time; others are skipped. A task is changed once at most, and
// only the version that the call selected. The call proceeds and ends as CancelMatching does.
func (c *Client) RunNowMatching(ctx context.Context, m Matching) (Matched, error) {
	return c.matching(ctx, &m, bulk.Change{Verb: bulk.RunNow}, task.Waiting, Retrying)
}

// RescheduleMatching gives the selected tasks the due time when. In(d) counts from when the
// task is changed. It keeps and skips the same as RunNowMatching, and proceeds and ends as
// CancelMatching does.
func (c *Client) RescheduleMatching(ctx context.Context, m Matching, when When) (Matched, error) {
	err := when.Check()
	if _, absolute := when.Instant(); err == nil && absolute {
		var now time.Time
		if now, err = c.now(ctx); err == nil {
			err = task.CheckWhen(when, now)
		}
	}
	if err != nil {
		return Matched{}, err
	}
	return c.matching(ctx, &m, bulk.Change{Verb: bulk.Move, When: when}, task.Waiting, Retrying)
}

// ShiftMatching makes each selected task due later by a duration of at least 1 ms, or
// earlier if it is negative. It counts from the next attempt; a result in the past means now.
// It keeps and skips the same as RunNowMatching, and proceeds and ends as CancelMatching does.
// After an interruption set Matching.Resume: without it, tasks are moved a second time.
func (c *Client) ShiftMatching(ctx context.Context, m Matching, by time.Duration) (Matched, error) {
	if by.Abs() < time.Millisecond || by > task.MaxAhead {
		return Matched{}, &task.RuleError{Field: "by", Rule: "must be at least 1ms, and at most 100 years",
			Got: by.String()}
	}
	return c.matching(ctx, &m, bulk.Change{Verb: bulk.Move, By: by}, task.Waiting, Retrying)
}

// matching makes a change, for tasks that may be in the given states.
func (c *Client) matching(ctx context.Context, m *Matching, change bulk.Change, states ...task.State) (Matched, error) {
	if err := m.check(states); err != nil {
		return Matched{}, err
	}
	change.Op = shard.NewOp()
	if m.Resume != "" {
		op, err := bulk.ReadOp(m.Resume)
		if err != nil {
			return Matched{}, &task.RuleError{Field: "resume", Rule: "must be Matched.Resume of another call",
				Got: fmt.Sprintf("%.20q", m.Resume)}
		}
		change.Op = op
	}
	change.Topic, change.Limit, change.Rate = c.store.Topic(m.Topic), m.Limit, m.Rate
	filter := bulk.Filter{State: m.State, Prefix: m.Prefix, Group: m.Group, DueAfter: m.DueFrom, DueBefore: m.DueTo}
	if m.DryRun {
		n, err := bulk.Count(ctx, change, filter)
		return matched(n, change.Op), m.named(err)
	}
	progress := func(n bulk.Counts) {
		if m.Progress != nil {
			m.Progress(matched(n, change.Op))
		}
	}
	progress(bulk.Counts{})
	n, err := bulk.Run(ctx, change, filter, progress)
	return matched(n, change.Op), m.named(err)
}

// check returns a *task.RuleError for the first rule that m breaks.
func (m *Matching) check(states []task.State) error {
	rule := func(field, rule, got string) error { return &task.RuleError{Field: field, Rule: rule, Got: got} }
	some := m.Prefix != "" || m.Group != "" || m.State != "" || !m.DueFrom.IsZero() || !m.DueTo.IsZero()
	err := cmp.Or(task.CheckTopic(m.Topic), task.CheckGroup(m.Group))
	switch {
	case err != nil:
		return err
	case !some && !m.All:
		return rule("matching", "must set Prefix, Group, State, DueFrom or DueTo, or All for all tasks", "none of them")
	case some && m.All:
		return rule("all", "must not be set together with Prefix, Group, State, DueFrom or DueTo", "both")
	case m.State != "" && !slices.Contains(states, m.State):
		return rule("state", fmt.Sprintf("must be among %s, or empty", states), fmt.Sprintf("%.20q", m.State))
	case m.Limit < 0:
		return rule("limit", "must not be negative", fmt.Sprint(m.Limit))
	case m.Rate < 0:
		return rule("rate", "must not be negative", fmt.Sprint(m.Rate))
	}
	return nil
}

func (m *Matching) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("change topic %s: %w", m.Topic, explained(err))
}

func matched(n bulk.Counts, op shard.Op) Matched {
	return Matched{Met: n.Matched, Changed: n.Changed, Skipped: n.Skipped, Failed: n.Failed, Resume: bulk.OpText(op)}
}
