package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// Recorder schedules tasks with the public library and enters every call into a ledger,
// failed calls too.
type Recorder struct {
	Client *producer.Client
	Ledger *Ledger
}

// Order is a request with its due time, which can't be read from Request.When.
type Order struct {
	producer.Request
	Due time.Time
}

// Schedule calls ScheduleMany of the library and returns the first error.
func (r Recorder) Schedule(ctx context.Context, orders ...Order) error {
	requests := make([]producer.Request, len(orders))
	for i, o := range orders {
		o.When = producer.At(o.Due)
		requests[i] = o.Request
	}
	var first error
	for i, result := range r.Client.ScheduleMany(ctx, requests) {
		k := Key{orders[i].Topic, orders[i].ID}
		switch {
		case result.Err == nil:
			if result.Due.UnixMilli() > orders[i].Due.UnixMilli() {
				// The call took effect after the due time. An earlier try may have taken
				// effect without a reply: that version has the original due time and may
				// arrive too.
				r.Ledger.MaybeScheduled(k, orders[i].Due, orders[i].Payload)
			}
			r.Ledger.Scheduled(k, result.Due, orders[i].Payload)
			continue
		case !result.Due.IsZero():
			r.Ledger.MaybeScheduled(k, result.Due, orders[i].Payload)
		case !refused(result.Err):
			r.Ledger.MaybeScheduled(k, orders[i].Due, orders[i].Payload)
		}
		if first == nil {
			first = result.Err
		}
	}
	return first
}

// Reschedule moves a task to due.
func (r Recorder) Reschedule(ctx context.Context, k Key, due time.Time) error {
	got, err := r.Client.Reschedule(ctx, k.Topic, k.ID, producer.At(due))
	switch {
	case err == nil:
		r.Ledger.Rescheduled(k, got)
	case !got.IsZero():
		r.Ledger.MaybeRescheduled(k, got)
	case !refused(err):
		r.Ledger.MaybeRescheduled(k, due)
	}
	return err
}

// Cancel removes a task. If the task is no longer stored, the ledger doesn't change: the
// task was either delivered or lost, which the ledger finds out.
func (r Recorder) Cancel(ctx context.Context, k Key) error {
	err := r.Client.Cancel(ctx, k.Topic, k.ID)
	switch {
	case err == nil:
		r.Ledger.Cancelled(k)
	case !refused(err):
		r.Ledger.MaybeCancelled(k)
	}
	return err
}

// refused returns true for errors that guarantee that nothing changed.
func refused(err error) bool {
	for _, e := range []error{task.ErrInvalid, task.ErrNotFound, task.ErrExists, task.ErrUnknownTopic, task.ErrRedisFull,
		task.ErrUnavailable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
