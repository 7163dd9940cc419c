package producer

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
)

// CancelMany removes tasks of a topic, with the promises of Cancel for each, in some round
// trips for each 1000 of them. The errors are in the order of the IDs, and each is as from
// Cancel: nil, task.ErrNotFound, task.ErrUnavailable, task.ErrUncertain, *task.RuleError.
// Of an ID that is given twice the second is task.ErrNotFound.
//
// Once Redis can't be asked, or doesn't answer, the thousands behind are not begun:
// task.ErrUnavailable. Call again with the IDs that failed.
func (c *Client) CancelMany(ctx context.Context, topic string, ids []string) []error {
	good, at, errs := checkNames(topic, ids)
	if len(good) == 0 {
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	router := c.store.Router(topic)
	all, err := writes(ctx, c, func() ([]error, error) { return router.CancelMany(ctx, good, c.maxPayload), nil })
	for n, i := range at {
		if err == nil {
			errs[i] = named(topic, ids[i], all[n])
		} else {
			errs[i] = named(topic, ids[i], err)
		}
	}
	return errs
}

// checkNames returns the IDs that keep the rules of input, their places, and the errors of
// the others.
func checkNames(topic string, ids []string) (good []string, at []int, errs []error) {
	errs = make([]error, len(ids))
	for i, id := range ids {
		if errs[i] = checkName(topic, id); errs[i] == nil {
			good, at = append(good, id), append(at, i)
		}
	}
	return good, at, errs
}

// GetResult is the result for one ID.
type GetResult struct {
	// Task is as from Get; the zero value with an error.
	Task Stored
	// Err is nil, task.ErrNotFound, task.ErrUnavailable, or why the task can't be read.
	Err error
}

// GetMany reads tasks of a topic like Get, in one round trip for each 2000 of them, or fewer
// if they are large: a reply of Redis's holds about 1 MiB, or one task. The results are in
// the order of the IDs, and all in memory at once. A task that moves to another shard at
// this moment has the state from before.
func (c *Client) GetMany(ctx context.Context, topic string, ids []string) []GetResult {
	results := make([]GetResult, len(ids))
	good, at, errs := checkNames(topic, ids)
	for i, err := range errs {
		results[i].Err = err
	}
	if len(good) == 0 {
		return results
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	all, err := reads(ctx, c, func() ([]shard.Got, error) { return c.store.Router(topic).GetMany(ctx, good), nil })
	for n, i := range at {
		switch {
		case err != nil:
			results[i].Err = named(topic, ids[i], err)
		case all[n].Err != nil:
			results[i].Err = named(topic, ids[i], all[n].Err)
		default:
			results[i].Task = newStored(all[n].Task)
		}
	}
	return results
}
