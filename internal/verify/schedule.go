package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	batchSize = 500
	// pace is the shortest time between two batches.
	pace = 5 * time.Millisecond
	// callLimit limits one call to Redis, also after Ctrl-C. uncertain is how long an
	// unanswered call may still take effect; see task.ErrUncertain.
	callLimit = 5 * time.Second
	uncertain = 3 * time.Second
	retryMax  = time.Second
	// slow is how long a call takes at least to count as an outage: the library repeats some
	// calls itself.
	slow = time.Second
)

// schedule schedules the tasks of a run evenly.
type schedule struct {
	cfg     Config
	clock   *clock
	ledger  *ledger
	queue   string
	payload []byte

	// last is the latest due time, by Redis's clock.
	last time.Time
	// uncertainUntil is when the last unanswered call can't take effect any more.
	uncertainUntil time.Time
	outages        int
	out            time.Duration // the outages together
	took           time.Duration
}

// drawn is a task to schedule.
type drawn struct {
	number  uint64
	request producer.Request
	// err is the error of the last call.
	err error
}

// run schedules tasks for Config.Duration. It ends early with the error of ctx, or with one
// that stays until somebody changes something. An outage ends it Config.Wait later.
func (s *schedule) run(ctx context.Context) error {
	began := time.Now()
	defer func() { s.took = time.Since(began) }()
	ends := began.Add(s.cfg.Duration)
	start, sent := began, 0 // start moves on by each outage, whose tasks aren't made up for
	every := time.Second / time.Duration(s.cfg.Rate)
	for ctx.Err() == nil {
		now := time.Now()
		if !now.Before(ends) {
			return nil
		}
		room := MaxOutstanding - s.ledger.left()
		if n := min(int(now.Sub(start)/every)+1-sent, batchSize, room); n > 0 {
			out, err := s.store(ctx, s.draw(n), ends.Add(s.cfg.Wait))
			if err != nil {
				return fmt.Errorf("schedule tasks: %w", err)
			}
			start = start.Add(out)
			sent += n
		}
		retry.Sleep(ctx, max(time.Until(start.Add(time.Duration(sent)*every)), pace))
	}
	return ctx.Err()
}

// draw makes n tasks with random due times.
func (s *schedule) draw(n int) []drawn {
	now, _ := s.clock.now(time.Now())
	tasks := make([]drawn, n)
	for i := range tasks {
		due := now.Add(rand.N(s.cfg.Delay + 1)).Truncate(time.Millisecond)
		if due.After(s.last) {
			s.last = due
		}
		number := s.ledger.reserve(due)
		tasks[i] = drawn{number: number, request: producer.Request{
			Topic: s.cfg.Topic, ID: s.ledger.id(number), When: producer.At(due), Payload: s.payload,
			Options: task.Options{RoutingKey: s.queue},
		}}
	}
	return tasks
}

// store schedules tasks. Until limit, it repeats calls that failed, with the same due times.
// out is how long they failed.
func (s *schedule) store(ctx context.Context, tasks []drawn, limit time.Time) (out time.Duration, err error) {
	pause := retry.Backoff{Max: retryMax}
	var failing time.Time
	for len(tasks) > 0 {
		sent := time.Now()
		tasks, err = s.call(ctx, tasks)
		if failing.IsZero() && (len(tasks) > 0 || time.Since(sent) > slow) {
			failing = sent
			s.outages++
		}
		last := err != nil || time.Now().After(limit)
		if len(tasks) > 0 && !last {
			last = !retry.Sleep(ctx, pause.Next())
		}
		tasks = slices.DeleteFunc(tasks, func(t drawn) bool { return !s.ledger.fail(t.number, t.err, last) })
	}
	if !failing.IsZero() {
		out = time.Since(failing)
	}
	s.out += out
	return out, err
}

// call schedules tasks once and returns those that failed. refused is the error of a call
// that can't succeed later.
func (s *schedule) call(ctx context.Context, tasks []drawn) (failed []drawn, refused error) {
	requests := make([]producer.Request, len(tasks))
	for i, t := range tasks {
		requests[i] = t.request
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	long := time.AfterFunc(slow, func() {
		for _, t := range tasks {
			s.ledger.waitsLong(t.number)
		}
	})
	defer long.Stop()
	for i, r := range s.cfg.Client.ScheduleMany(ctx, requests) {
		t := tasks[i]
		if r.Err == nil {
			s.ledger.know(t.number, r.Due)
			continue
		}
		t.err = r.Err
		failed = append(failed, t)
		if stays(r.Err) {
			refused = r.Err
		}
		if errors.Is(r.Err, task.ErrUncertain) {
			s.uncertainUntil = time.Now().Add(uncertain)
		}
	}
	return failed, refused
}

// stays reports whether an error of Redis stays until somebody changes something.
func stays(err error) bool {
	text := err.Error()
	return errors.Is(err, task.ErrInvalid) || errors.Is(err, task.ErrUnknownTopic) ||
		strings.Contains(text, "NOPERM") || strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH")
}
