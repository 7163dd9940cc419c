package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	verifyBatch = 500
	// verifyPace is the shortest time between two batches.
	verifyPace = 5 * time.Millisecond
	// verifyCall limits one call to Redis, also after Ctrl-C. verifyUncertain is how long an
	// unanswered call may still take effect; see task.ErrUncertain.
	verifyCall      = 5 * time.Second
	verifyUncertain = 3 * time.Second
	verifyRetryMax  = time.Second
	// verifySlow is how long a call takes at least to count as an outage: the library repeats
	// some calls itself.
	verifySlow = time.Second
)

// verifySchedule schedules the tasks of a run evenly.
type verifySchedule struct {
	flags   *verifyFlags
	client  *producer.Client
	clock   *redisClock
	ledger  *verifyLedger
	options task.Options
	payload []byte

	// last is the latest due time, by Redis's clock.
	last time.Time
	// uncertainUntil is when the last unanswered call can't take effect any more.
	uncertainUntil time.Time
	outages        int
	out            time.Duration
	took           time.Duration
}

func newVerifySchedule(v *verification) *verifySchedule {
	return &verifySchedule{
		flags: v.flags, client: v.client, clock: v.clock, ledger: v.ledger,
		options: verifyOptions(v.queue.name), payload: bytes.Repeat([]byte("v"), v.flags.payload),
	}
}

// run schedules tasks for --for. It ends early with the error of ctx, or with one that stays
// until somebody changes something. An outage ends it after --for and --wait.
func (s *verifySchedule) run(ctx context.Context) error {
	began := time.Now()
	defer func() { s.took = time.Since(began) }()
	ends := began.Add(s.flags.long)
	start, sent := began, 0 // start moves on by each outage, whose tasks aren't made up for
	every := time.Second / time.Duration(s.flags.rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(ends) {
			return nil
		}
		room := verifyMostOutstanding - s.ledger.left()
		if n := min(int(now.Sub(start)/every)+1-sent, verifyBatch, room); n > 0 {
			out, err := s.store(ctx, n, ends.Add(s.flags.wait))
			if err != nil {
				return err
			}
			start = start.Add(out)
			sent += n
		}
		timer.Reset(max(time.Until(start.Add(time.Duration(sent)*every)), verifyPace))
	}
}

// store schedules n tasks. Until limit, it repeats calls that failed, with the same due
// times. out is how long they failed.
func (s *verifySchedule) store(ctx context.Context, n int, limit time.Time) (out time.Duration, err error) {
	numbers, requests := s.draw(n)
	var failing time.Time
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, verifyRetryMax) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), verifyCall)
		sent := time.Now()
		results := s.client.ScheduleMany(call, requests)
		cancel()
		left, refused := s.read(numbers, results)
		if failing.IsZero() && (len(left) > 0 || time.Since(sent) > verifySlow) {
			failing = sent
			s.outages++
		}
		if !failing.IsZero() {
			out = time.Since(failing)
		}
		if refused != nil || len(left) == 0 || ctx.Err() != nil || time.Now().After(limit) {
			s.giveUp(numbers, results, left)
			s.out += out
			return out, refused
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		numbers, requests = s.again(numbers, requests, results, left)
		if len(requests) == 0 {
			s.out += time.Since(failing)
			return time.Since(failing), nil
		}
	}
}

// draw makes n tasks with random due times.
func (s *verifySchedule) draw(n int) (numbers []uint64, requests []producer.Request) {
	now, _ := s.clock.now(time.Now())
	dues := make([]time.Time, n)
	for i := range dues {
		dues[i] = now.Add(rand.N(s.flags.delay + 1)).Truncate(time.Millisecond)
		if dues[i].After(s.last) {
			s.last = dues[i]
		}
	}
	first := s.ledger.reserve(dues)
	for i, due := range dues {
		number := first + uint64(i)
		numbers = append(numbers, number)
		requests = append(requests, producer.Request{
			Topic: s.flags.topic, ID: s.ledger.id(number), When: producer.At(due), Payload: s.payload, Options: s.options,
		})
	}
	return numbers, requests
}

// read notes which tasks are stored, and returns the indexes of the others. refused is the
// error of a call that can't succeed later.
func (s *verifySchedule) read(numbers []uint64, results []producer.Result) (left []int, refused error) {
	for i, r := range results {
		if r.Err == nil {
			s.ledger.know(numbers[i], r.Due)
			continue
		}
		left = append(left, i)
		if verifyRefused(r.Err) {
			refused = r.Err
		}
		if errors.Is(r.Err, task.ErrUncertain) {
			s.uncertainUntil = time.Now().Add(verifyUncertain)
		}
	}
	return left, refused
}

// again returns the tasks to schedule again: those that weren't delivered meanwhile.
func (s *verifySchedule) again(numbers []uint64, requests []producer.Request, results []producer.Result,
	left []int) (fewer []uint64, repeated []producer.Request) {
	for _, i := range left {
		if s.ledger.storeAgain(numbers[i], !errors.Is(results[i].Err, task.ErrUnavailable)) {
			fewer = append(fewer, numbers[i])
			repeated = append(repeated, requests[i])
		} else {
			s.ledger.know(numbers[i], time.Time{})
		}
	}
	return fewer, repeated
}

// giveUp removes the tasks that certainly aren't stored, unless they were delivered.
func (s *verifySchedule) giveUp(numbers []uint64, results []producer.Result, left []int) {
	for _, i := range left {
		switch err := results[i].Err; {
		case !s.ledger.storeAgain(numbers[i], false):
			s.ledger.know(numbers[i], time.Time{})
		case errors.Is(err, task.ErrUnavailable), verifyRefused(err):
			s.ledger.withdraw(numbers[i])
		}
	}
}

// untilLast returns how long it is until the last due time.
func (s *verifySchedule) untilLast() time.Duration {
	now, _ := s.clock.now(time.Now())
	return max(s.last.Sub(now), 0)
}
