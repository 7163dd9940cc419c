package producer

import (
	"cmp"
	"context"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/task"
)

// CancelMany removes tasks of a topic, each with the promises of Cancel. It needs a few
// round trips for each 1000 IDs. It returns one error for each ID, in the same order: what
// Cancel would return, nil included. If an ID is given twice, the second gets
// task.ErrNotFound.
//
// CancelMany works on 1000 IDs at a time. If Redis can't be reached or doesn't answer, it
// doesn't start the next 1000: all remaining IDs get task.ErrUnavailable. Call again with
// the IDs that failed.
func (c *Client) CancelMany(ctx context.Context, topic string, ids []string) []error {
	good, at, errs := checkNames(topic, ids)
	if len(good) == 0 {
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	all, err := within(ctx, c, task.ErrUncertain, func(ctx context.Context, ids []string) ([]error, error) {
		return c.routers.Topic(topic).CancelMany(ctx, ids, c.maxPayload), nil
	}, good)
	for n, i := range at {
		if err == nil {
			errs[i] = named(topic, ids[i], all[n])
		} else {
			errs[i] = named(topic, ids[i], err)
		}
	}
	return errs
}

// Move asks for a new due time of one task.
type Move struct {
	// ID of the task within its topic.
	ID string
	// When the task is due: Now, In or At. Required.
	When When
}

// RescheduleMany gives tasks of a topic new due times, each with the promises of
// Reschedule. It needs a few round trips for each 1000 tasks. The results are in the order
// of the moves: what Reschedule would return. If an ID is given twice, the later move wins.
//
// RescheduleMany works on 1000 tasks at a time. If Redis can't be reached or doesn't answer,
// it doesn't start the next 1000: all remaining moves get task.ErrUnavailable. Call again
// with the moves that failed.
func (c *Client) RescheduleMany(ctx context.Context, topic string, moves []Move) []Result {
	results := make([]Result, len(moves))
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	good := c.good(ctx, results, func(i int) (When, error) {
		return moves[i].When, cmp.Or(checkName(topic, moves[i].ID), moves[i].When.Check())
	})
	if len(good) == 0 {
		return results
	}
	asked := make([]router.Move, len(good))
	for n, i := range good {
		asked[n] = router.Move(moves[i])
	}
	all, err := within(ctx, c, task.ErrUncertain, func(ctx context.Context, m []router.Move) ([]router.Scheduled, error) {
		return c.routers.Topic(topic).RescheduleMany(ctx, m, c.maxPayload), nil
	}, asked)
	for n, i := range good {
		if err != nil {
			results[i].Err = named(topic, moves[i].ID, err)
			continue
		}
		results[i].Err = named(topic, moves[i].ID, all[n].Err)
		if all[n].Due > 0 { // with task.ErrReplicas too
			results[i].Due = fromMillis(all[n].Due)
		}
	}
	return results
}

// checkNames returns the IDs that keep the rules of input, their indexes, and an error
// for each of the others.
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
	// Task is the result of Get, or the zero value if Err is set.
	Task Stored
	// Err is nil, task.ErrNotFound, task.ErrUnavailable, or the reason why the task can't
	// be read.
	Err error
}

// GetMany reads tasks of a topic like Get. It makes one round trip for each 2000 IDs. If
// the tasks are large it makes more, because a reply of Redis holds about 1 MiB or one
// task. The results are in the order of the IDs, all in memory at once.
//
// If a task moves to another shard during the call, its result may show the state before
// the move.
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
	all, err := within(ctx, c, task.ErrUnavailable, func(ctx context.Context, ids []string) ([]router.Got, error) {
		return c.routers.Topic(topic).GetMany(ctx, ids), nil
	}, good)
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
