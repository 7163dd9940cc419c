package producer

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Filter selects the tasks that List yields. The zero value selects all.
type Filter struct {
	// Prefix of the task's ID. Defaults to any.
	Prefix string
	// Group of the task. With it, List reads the group's tasks and not the topic. Defaults to any.
	Group string
	// State of the task: task.Waiting, task.Leased or task.Parked. Defaults to any.
	State task.State
	// DueFrom and DueTo bound the due time, both included, to the millisecond. For a
	// waiting task they bound Stored.NextAttempt instead, which is later than Due after a
	// failed attempt. Default to no bound.
	DueFrom, DueTo time.Time
	// Limit is the largest number of tasks to yield. Defaults to 0: no limit.
	Limit int
	// WithoutPayload leaves out the payloads, which saves network traffic.
	WithoutPayload bool
}

func (f Filter) check() error {
	switch f.State {
	case "", task.Waiting, task.Leased, task.Parked:
	default:
		rule := fmt.Sprintf("must be %s, %s, %s or empty", task.Waiting, task.Leased, task.Parked)
		return &task.RuleError{Field: "state", Rule: rule, Got: fmt.Sprintf("%.20q", f.State)}
	}
	if f.Limit < 0 {
		return &task.RuleError{Field: "limit", Rule: "must not be negative", Got: fmt.Sprint(f.Limit)}
	}
	return task.CheckGroup(f.Group)
}

// List yields the stored tasks of a topic, each once, also while the shard count changes.
// Which tasks it is sure to yield depends on the filter:
//   - Without State, DueFrom and DueTo, or with Group: every task that stays stored until List ends, in no
//     order.
//   - With one of them: every task whose state and times stay the same until List ends, shard
//     by shard. A task that is claimed, retried or rescheduled meanwhile may be left out.
//
// With State, DueFrom or DueTo, List doesn't read the whole topic. It reads all leased
// tasks, and the waiting and parked tasks that the filter may select.
//
// List reads a page at a time and blocks nobody. It keeps 8 bytes of memory for each
// task. A page holds about 1 MiB, or one task. Config.Timeout limits each page; ctx
// limits all of them.
//
// A task whose record can't be read is yielded with its Topic and ID and an error, and
// List continues. Any other error ends List and comes with an empty Stored:
// *task.RuleError, task.ErrUnknownTopic, task.ErrUnavailable, or an error of Redis. The
// user in Redis needs the rights to ZSCAN, ZCOUNT, ZRANGE and ZRANK, as in
// deploy/redis/producer.acl.
func (c *Client) List(ctx context.Context, topic string, f Filter) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		if err := cmp.Or(task.CheckTopic(topic), f.check()); err != nil {
			yield(Stored{}, err)
			return
		}
		listing := c.listing(topic, f)
		for left := f.Limit; ; {
			page, err := c.page(ctx, listing)
			if err != nil {
				yield(Stored{}, fmt.Errorf("list topic %s: %w", topic, err))
				return
			}
			for _, s := range page {
				if !yield(newStored(s), named(topic, s.ID, s.Err)) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// listing pages through tasks. An empty page is the end.
type listing interface {
	Next(ctx context.Context) ([]shard.Stored, error)
}

func (c *Client) listing(topic string, f Filter) listing {
	w := shard.Wanted{Prefix: f.Prefix, State: f.State, From: f.DueFrom, To: f.DueTo, NoPayloads: f.WithoutPayload}
	if f.Group != "" {
		return &groupListing{c.routers.Topic(topic).Group(f.Group), w}
	}
	return c.store.Topic(topic).Listing(w)
}

// groupListing pages through the selected tasks of a group.
type groupListing struct {
	group  *router.Group
	wanted shard.Wanted
}

// Next implements listing.
func (g *groupListing) Next(ctx context.Context) (page []shard.Stored, err error) {
	for len(page) == 0 {
		all, err := g.group.Next(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		for _, s := range all {
			if !g.wanted.Holds(s) {
				continue
			}
			if g.wanted.NoPayloads {
				s.Payload = nil
			}
			page = append(page, s)
		}
	}
	return page, nil
}

// page returns the next page. An empty page is the end.
func (c *Client) page(ctx context.Context, from listing) ([]shard.Stored, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	next := func(ctx context.Context, l listing) ([]shard.Stored, error) { return l.Next(ctx) }
	return within(ctx, c, task.ErrUnavailable, next, from)
}

// newStored returns s for the caller. It clones the reason, because the original would
// keep the whole record in memory.
func newStored(s shard.Stored) Stored {
	shard.HideNext(&s.Task)
	return Stored{Task: s.Task, State: s.State, NextAttempt: s.Next, Reason: strings.Clone(s.Reason)}
}
