package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	// PayloadSize and an ID of 18 bytes are those of every measure that names no
	// other.
	PayloadSize = 200
	dueDigits   = 19
	idPrefix    = "task-"
)

// Task is one task of any system: an ID of 18 bytes, and a payload that begins
// with the due time in ns, so that whoever consumes it can tell how late it is.
type Task struct {
	Number  int
	Due     time.Time
	Payload []byte
}

// NewTask makes the task of that number, with a payload of 200 bytes. Numbers are
// unique within a run.
func NewTask(number int, due time.Time) Task { return SizedTask(number, due, PayloadSize) }

// SizedTask is NewTask with a payload of so many bytes, 19 at least.
func SizedTask(number int, due time.Time, size int) Task {
	payload := make([]byte, size)
	n := copy(payload, fmt.Sprintf("%0*d", dueDigits, due.UnixNano()))
	for i := n; i < size; i++ {
		payload[i] = 'a' + byte((i*7+number)%26)
	}
	return Task{Number: number, Due: due, Payload: payload}
}

// ID is 18 bytes.
func (t Task) ID() string { return fmt.Sprintf(idPrefix+"%013d", t.Number) }

// Number reads it from an ID.
func numberOf(id string) (int, error) {
	if len(id) < len(idPrefix) {
		return 0, fmt.Errorf("message-id %q is none of ours", id)
	}
	return strconv.Atoi(id[len(idPrefix):])
}

// dueOf reads the due time from a payload.
func dueOf(payload []byte) (time.Time, error) {
	if len(payload) < dueDigits {
		return time.Time{}, fmt.Errorf("payload of %d bytes holds no due time", len(payload))
	}
	ns, err := strconv.ParseInt(string(payload[:dueDigits]), 10, 64)
	return time.Unix(0, ns), err
}

// Tasks makes the tasks from up to (not including) to, all due at one time.
func Tasks(from, to int, due time.Time) []Task { return SizedTasks(from, to, due, PayloadSize) }

// SizedTasks is Tasks with payloads of so many bytes, 19 at least.
func SizedTasks(from, to int, due time.Time, size int) []Task {
	tasks := make([]Task, 0, to-from)
	for n := from; n < to; n++ {
		tasks = append(tasks, SizedTask(n, due, size))
	}
	return tasks
}

// Scheduler is a system's side that takes tasks. It is safe for concurrent use.
type Scheduler interface {
	// Schedule returns when all of them are stored.
	Schedule(ctx context.Context, tasks []Task) error
}

// System is anything that keeps tasks until they are due and then publishes
// them, confirmed, to a queue of RabbitMQ's.
type System interface {
	Scheduler
	// Stop ends it and returns when it is gone.
	Stop() error
}

// Load is tasks that come by chance: Poisson arrivals at a rate, each due after
// a delay of its own.
type Load struct {
	// Rate is the mean, tasks a second.
	Rate float64
	// For is how long they come.
	For time.Duration
	// From and To bound the delays, which are spread evenly.
	From, To time.Duration
	// First is the number of its first task.
	First int
}

// inFlight is how many calls of Schedule an Offer makes at a time.
const inFlight = 64

// Offer schedules a load, open loop: tasks come at their instants, however long
// the system takes for others; those that came within a millisecond or so make
// one call. The due time is taken right before the call. It returns the number
// of the task after the last, once all are stored.
func Offer(ctx context.Context, s Scheduler, l Load) (int, error) {
	slots, errs := make(chan struct{}, inFlight), make(chan error, inFlight)
	next := time.Now()
	end := next.Add(l.For)
	number := l.First
	for next.Before(end) {
		if err := Sleep(ctx, time.Until(next)); err != nil {
			return number, err
		}
		first := number
		for now := time.Now(); !next.After(now) && next.Before(end); number++ {
			next = next.Add(time.Duration(rand.ExpFloat64() / l.Rate * float64(time.Second)))
		}
		if number == first {
			continue
		}
		slots <- struct{}{}
		go func(to int) {
			defer func() { <-slots }()
			if err := s.Schedule(ctx, l.tasks(first, to)); err != nil {
				select {
				case errs <- err:
				default: // the first ones are enough
				}
			}
		}(number)
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return number, errors.Join(all...)
}

func (l Load) tasks(from, to int) []Task {
	tasks := make([]Task, 0, to-from)
	for n := from; n < to; n++ {
		delay := l.From
		if l.To > l.From {
			delay += rand.N(l.To - l.From)
		}
		tasks = append(tasks, NewTask(n, time.Now().Add(delay).Truncate(time.Millisecond)))
	}
	return tasks
}
