package producer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// scheduler is the part of a *producer.Client that an application uses.
type scheduler interface {
	Schedule(ctx context.Context, r producer.Request) (due time.Time, err error)
}

// fakeScheduler prints due times. Its clock stands still.
type fakeScheduler struct{ now time.Time }

func (f fakeScheduler) Schedule(_ context.Context, r producer.Request) (due time.Time, err error) {
	if err := r.Check(task.DefaultMaxPayload, f.now); err != nil {
		return time.Time{}, err
	}
	if wait, relative := r.When.Wait(); relative {
		fmt.Println(r.ID, "waits", wait)
	} else if at, absolute := r.When.Instant(); absolute {
		fmt.Println(r.ID, "is due at", at.UTC().Format(time.TimeOnly))
	}
	return r.When.Time(f.now), nil
}

// A fake in place of a *producer.Client reads a due time by its methods Wait, Instant and
// Time. To test the handler too, use package duefleettest.
func Example_fake() {
	var tasks scheduler = fakeScheduler{now: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)}
	for id, when := range []producer.When{
		producer.Now(),
		producer.In(90 * time.Second),
		producer.At(time.Date(2026, 12, 1, 18, 30, 0, 0, time.UTC)),
		{}, // forgotten
	} {
		due, err := tasks.Schedule(context.Background(), producer.Request{
			Topic: "orders", ID: fmt.Sprint(id), When: when,
		})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(due.UTC().Format(time.TimeOnly))
	}
	// Output:
	// 0 waits 0s
	// 10:00:00
	// 1 waits 1m30s
	// 10:01:30
	// 2 is due at 18:30:00
	// 18:30:00
	// due: must be given; Now() is due now; got no time
}
