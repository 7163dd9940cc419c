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
	// PayloadSize is the default size of a payload, in bytes.
	PayloadSize = 200
	// dueDigits is the number of digits of the due time, in ns, with which a payload begins.
	dueDigits = 19
	idPrefix  = "task-"
)

// Task is one task of any system: an ID of 18 bytes, and a payload that begins with the
// due time in ns. The consumer calculates its lateness from that.
type Task struct {
	Number  int
	Due     time.Time
	Payload []byte
}

// NewTask makes the task with a number, with a payload of 200 bytes. Numbers are unique
// within a run.
func NewTask(number int, due time.Time) Task { return SizedTask(number, due, PayloadSize) }

// SizedTask is NewTask with a payload of size bytes, at least 19.
func SizedTask(number int, due time.Time, size int) Task {
	payload := make([]byte, size)
	n := copy(payload, fmt.Sprintf("%0*d", dueDigits, due.UnixNano()))
	for i := n; i < size; i++ {
		payload[i] = 'a' + byte((i*7+number)%26)
	}
	return Task{Number: number, Due: due, Payload: payload}
}

// ID returns the task's ID of 18 bytes.
func (t Task) ID() string { return fmt.Sprintf(idPrefix+"%013d", t.Number) }

// numberOf reads the number from an ID.
func numberOf(id string) (int, error) {
	if len(id) < len(idPrefix) {
		return 0, fmt.Errorf("message-id %q is not from this benchmark", id)
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

// Tasks makes the tasks with the numbers from up to, but not including, to. All are due
// at the same time.
func Tasks(from, to int, due time.Time) []Task { return SizedTasks(from, to, due, PayloadSize) }

// SizedTasks is Tasks with payloads of size bytes, at least 19.
func SizedTasks(from, to int, due time.Time, size int) []Task {
	tasks := make([]Task, 0, to-from)
	for n := from; n < to; n++ {
		tasks = append(tasks, SizedTask(n, due, size))
	}
	return tasks
}

// Scheduler accepts tasks of a system. It is safe for concurrent use.
type Scheduler interface {
	// Schedule returns when all tasks are stored.
	Schedule(ctx context.Context, tasks []Task) error
}

// System keeps tasks until they are due, and then publishes them, with confirms, to a
// RabbitMQ queue.
type System interface {
	Scheduler
	// Stop stops the system and returns when it is gone.
	Stop() error
}

// Load is a random load: tasks are scheduled as a Poisson process, each with its own
// random delay.
type Load struct {
	// Rate is the mean in tasks per second.
	Rate float64
	// For is how long tasks are scheduled.
	For time.Duration
	// From and To are the shortest and the longest delay. Delays are distributed evenly
	// between them.
	From, To time.Duration
	// First is the number of the first task.
	First int
}

// inFlight is the number of concurrent calls of Schedule in Offer.
const inFlight = 64

// Offer schedules a load. It schedules each task at its random instant and doesn't wait
// for earlier calls, unless inFlight calls are running. Tasks within about a millisecond
// share one call. Their due times count from that call. Offer returns when all tasks are
// stored, with the number for the next task.
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
				default: // the first errors are enough
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
