package producer

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Filter is which tasks List yields; the zero value is all of them.
type Filter struct {
	// Prefix that their IDs begin with. Defaults to any.
	Prefix string
	// State they are in: task.Waiting, task.Leased or task.Parked. Defaults to any.
	State task.State
	// DueFrom and DueTo bound when they are due, both included, to the millisecond. A task
	// that waits for another attempt counts by Stored.NextAttempt, when it is due again.
	// Default to no bound.
	DueFrom, DueTo time.Time
	// Limit is how many of them are yielded at most. Defaults to 0: no limit.
	Limit int
	// WithoutPayload leaves their payloads out, and takes less of the network.
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
	return nil
}

// List yields stored tasks of a topic, and none twice, also while the shard count changes:
//   - without State, DueFrom and DueTo each that stays stored from the first call to the
//     last, in no order;
//   - with them each whose state and times stay as they are, shard by shard. Only tasks of
//     that state, or waiting ones of that window, are read, and leased ones. A task that is
//     claimed, tried again or rescheduled meanwhile may be left out.
//
// It reads a page at a time, holds up nobody, and remembers 8 bytes for each task. A page
// holds about 1 MiB, or one task. Config.Timeout bounds each page; all of it ends with ctx.
//
// A task whose record can't be read comes with an error and with its Topic and ID, and the
// others follow. Any other error is the last thing that it yields, beside an empty Stored:
// *task.RuleError, task.ErrUnknownTopic, task.ErrUnavailable, or Redis's. A user with the
// rights of deploy/redis needs ZSCAN, ZCOUNT, ZRANGE and ZRANK for it.
func (c *Client) List(ctx context.Context, topic string, f Filter) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		if err := first(task.CheckTopic(topic), f.check()); err != nil {
			yield(Stored{}, err)
			return
		}
		listing := c.store.Topic(topic).Listing(shard.Wanted{
			Prefix: f.Prefix, State: f.State, From: f.DueFrom, To: f.DueTo, NoPayloads: f.WithoutPayload,
		})
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

// page is the next one; an empty one is the end.
func (c *Client) page(ctx context.Context, listing *shard.Listing) ([]shard.Stored, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return reads(ctx, c, func() ([]shard.Stored, error) { return listing.Next(ctx) })
}

// newStored copies the reason, which would keep the whole record in memory.
func newStored(s shard.Stored) Stored {
	shard.HideNext(&s.Task)
	return Stored{Task: s.Task, State: s.State, NextAttempt: s.Next, Reason: strings.Clone(s.Reason)}
}
