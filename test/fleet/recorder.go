package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// Recorder schedules with the public library and enters every call into a
// ledger, also those that failed.
type Recorder struct {
	Client *producer.Client
	Ledger *Ledger
}

// Order is a request with its due time, which Request.When does not tell.
type Order struct {
	producer.Request
	Due time.Time
}

// Schedule is ScheduleMany of the library. The error is the first one.
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
				// It was executed when the due time was over. Its reply may have been
				// lost once before: that copy kept the time, and may be delivered.
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

// Cancel removes a task. One that isn't stored any more changes nothing: either
// it was delivered or it is lost, and the ledger finds that out.
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

// refused is true for errors that say that nothing was changed.
func refused(err error) bool {
	for _, e := range []error{task.ErrInvalid, task.ErrNotFound, task.ErrExists, task.ErrUnknownTopic, task.ErrRedisFull, task.ErrUnavailable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
