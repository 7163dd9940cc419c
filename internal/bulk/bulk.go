// Package bulk changes stored tasks for an operator, one or many: it makes them due now,
// moves them, or cancels them. It uses the steps of internal/router, so that the promises
// of the producer library hold for each task, also while the shard count changes.
package bulk

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Verb names the work of a Change on a task.
type Verb string

// The verbs.
const (
	// RunNow makes a waiting task due now. It keeps its attempts, reason and first due time.
	RunNow Verb = "run-now"
	// Move gives a waiting task another due time, and keeps the same as RunNow.
	Move Verb = "move"
	// Cancel removes a task in any state.
	Cancel Verb = "cancel"
)

// Change says what is done with the selected tasks.
type Change struct {
	Topic *shard.Topic
	Verb  Verb
	// When is the new due time for Move. By, if not 0, is added to each task's next attempt
	// instead; a result in the past means now.
	When task.When
	By   time.Duration
	// Op numbers the change. A task that was moved with it isn't moved again, unless it was
	// stored again since. So an interrupted Move with By goes on with the rest. Required
	// for RunNow and Move: shard.NewOp, or ReadOp.
	Op shard.Op
	// Limit is how many tasks are changed at most; 0: no limit.
	Limit int
	// Rate is how many tasks per second are changed at most; 0: no limit.
	Rate int
}

// OpText returns an Op as a text for people.
func OpText(op shard.Op) string { return hex.EncodeToString([]byte(op)) }

// ReadOp reads what OpText returned.
func ReadOp(text string) (shard.Op, error) {
	op, err := hex.DecodeString(text)
	if err != nil || len(op) != len(shard.NewOp()) {
		return "", errors.New("want the 12 hexadecimal digits that the interrupted command printed")
	}
	return shard.Op(op), nil
}

const (
	// batchTasks is how many tasks are changed at once. There is one batch at a time, so
	// that a change leaves Redis to others.
	batchTasks = 50
	// idleShare is how much longer than a batch the pause after it is, if there is no rate. So
	// two thirds of the time are left for deliveries.
	idleShare = 2
	// steps is how many batches per second share a rate.
	steps = 10
)

// Run changes the selected tasks, and calls progress, if not nil, after each batch. A task
// is changed once at most, and only the version that the filter saw. Cancel removes the
// version that is stored when it comes, if that is in Filter.Group.
//
// Run may be interrupted at any time. The same call again goes on: what was changed is
// skipped or isn't selected. If Redis can't be reached, Run ends with task.ErrUnavailable
// or task.ErrUncertain. It skips shards that can't be read, and then returns an
// *shard.UnreadableError that names them. Other errors: *MissingError,
// task.ErrUnknownTopic.
func Run(ctx context.Context, c Change, f Filter, progress func(Counts)) (Counts, error) {
	w := newWork(c, progress)
	err := w.through(ctx, f, w.take)
	if errors.Is(err, errFull) {
		return w.counts, w.failed()
	}
	if err != nil && shard.Unreadable(err) == nil && !errors.Is(err, task.ErrNotFound) {
		return w.counts, err
	}
	if end := w.flush(ctx); end != nil && !errors.Is(end, errFull) {
		return w.counts, end
	}
	return w.counts, errors.Join(err, w.failed())
}

// Count returns what Run would do now: Changed is how many tasks it would change. It knows
// Redis's clock to some milliseconds.
func Count(ctx context.Context, c Change, f Filter) (Counts, error) {
	w := newWork(c, nil)
	err := w.through(ctx, f, func(_ context.Context, s shard.Stored) error {
		switch w.counts.Matched++; {
		case w.spoilt(s):
			w.counts.Failed++
		case w.skips(s):
			w.counts.Skipped++
		default:
			w.counts.Changed++
		}
		if c.Limit > 0 && w.counts.Changed >= int64(c.Limit) {
			return errFull
		}
		return nil
	})
	if shard.Unreadable(err) != nil || errors.Is(err, errFull) {
		err = nil // Run reports what can't be read
	}
	return w.counts, err
}

// errFull ends a change at its limit.
var errFull = errors.New("the limit is reached")

// work is one change under way.
type work struct {
	Change
	router   *router.Router
	group    string // of the tasks, which Cancel checks; "": any
	progress func(Counts)
	began    time.Time
	now      time.Time // Redis's, a moment ago
	counts   Counts
	batch    []shard.Stored
	first    error // of a task that failed alone
}

func newWork(c Change, progress func(Counts)) *work {
	if progress == nil {
		progress = func(Counts) {}
	}
	return &work{Change: c, router: router.New(c.Topic.Store()).Topic(c.Topic.Name()), progress: progress,
		began: time.Now()}
}

// through calls each with every selected task, until it returns an error.
func (w *work) through(ctx context.Context, f Filter, each func(context.Context, shard.Stored) error) error {
	if _, err := w.Topic.Placement(ctx); err != nil {
		return luascript.Unasked(w.Topic.Store().Registry().Suggest(ctx, w.Topic.Name(), err))
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	if len(f.IDs) > 0 {
		return w.named(ctx, f.IDs, each)
	}
	w.group = f.Group
	tasks := admin.Tasks{Topic: w.Topic, State: f.State, Prefix: f.Prefix, Group: f.Group, DueAfter: f.DueAfter,
		DueBefore: f.DueBefore}
	var ended error
	err := tasks.Each(ctx, func(l admin.Listed) bool {
		ended = each(ctx, l.Stored)
		return ended == nil
	})
	if ended != nil {
		return ended
	}
	return luascript.Unasked(err)
}

// look reads Redis's clock.
func (w *work) look(ctx context.Context) error {
	ms, err := w.Topic.Now(ctx)
	w.now = time.UnixMilli(ms)
	return luascript.Unasked(err)
}

// named is through for IDs.
func (w *work) named(ctx context.Context, ids []string, each func(context.Context, shard.Stored) error) error {
	missing := &MissingError{Topic: w.Topic.Name()}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	for some := range slices.Chunk(ids, batchTasks) {
		for i, got := range w.router.GetMany(ctx, some) {
			switch err := got.Err; {
			case errors.Is(err, task.ErrNotFound):
				missing.IDs = append(missing.IDs, some[i])
				continue
			case err != nil && away(err):
				return err
			case err != nil:
				got.Task.Topic, got.Task.ID, got.Task.Err = w.Topic.Name(), some[i], err
			}
			if err := each(ctx, got.Task); err != nil {
				return err
			}
		}
	}
	if len(missing.IDs) > 0 {
		return missing
	}
	return nil
}

// spoilt reports whether a task can't be changed because its record can't be read.
func (w *work) spoilt(s shard.Stored) bool { return s.Err != nil && w.Verb != Cancel }

// skips reports whether a task stays as it is.
func (w *work) skips(s shard.Stored) bool {
	switch {
	case w.Verb == Cancel:
		return false
	case s.State != task.Waiting && s.State != admin.Retrying, s.Op == string(w.Op):
		return true
	}
	return w.Verb == RunNow && !s.Next.After(w.now)
}

// take counts a selected task, and changes a batch when it is full.
func (w *work) take(ctx context.Context, s shard.Stored) error {
	switch w.counts.Matched++; {
	case w.spoilt(s):
		w.fail(s.ID, s.Err)
		return nil
	case w.skips(s):
		w.counts.Skipped++
		return nil
	}
	if w.batch = append(w.batch, s); len(w.batch) < w.size() {
		return nil
	}
	return w.flush(ctx)
}

// size is how many tasks the next batch may have.
func (w *work) size() int {
	n := batchTasks
	if w.Rate > 0 {
		n = min(n, max(w.Rate/steps, 1))
	}
	if w.Limit > 0 {
		n = max(1, min(n, w.Limit-int(w.counts.Changed)))
	}
	return n
}

// flush changes the batch. It returns errFull at the limit.
func (w *work) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	if w.Rate > 0 {
		earned := time.Duration(float64(w.counts.Changed) / float64(w.Rate) * float64(time.Second))
		retry.Sleep(ctx, time.Until(w.began.Add(earned)))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	some, began := w.batch, time.Now()
	w.batch = nil
	var stop error
	for i, err := range w.change(ctx, some) {
		switch {
		case err == nil:
			w.counts.Changed++
		case stays(err):
			w.counts.Skipped++
		default:
			if w.fail(some[i].ID, err); away(err) {
				stop = err
			}
		}
	}
	w.progress(w.counts)
	if w.Rate == 0 {
		retry.Sleep(ctx, idleShare*time.Since(began))
	}
	switch {
	case stop != nil:
		return stop
	case w.Limit > 0 && w.counts.Changed >= int64(w.Limit):
		return errFull
	}
	return w.look(ctx)
}

// change carries out the verb. The errors are in the order of the tasks.
func (w *work) change(ctx context.Context, some []shard.Stored) []error {
	errs := make([]error, len(some))
	if w.Verb == Cancel {
		ids := make([]string, len(some))
		for i, s := range some {
			ids[i] = s.ID
		}
		return w.router.CancelInGroup(ctx, ids, w.group, task.DefaultMaxPayload)
	}
	moves := make([]router.Retime, len(some))
	for i, s := range some {
		moves[i] = router.Retime{ID: s.ID, When: w.when(s), Op: w.Op,
			Retiming: shard.Retiming{Seen: s.Version(), Now: w.Verb == RunNow}}
	}
	for i, r := range w.router.RetimeMany(ctx, moves, task.DefaultMaxPayload) {
		errs[i] = r.Err
	}
	return errs
}

// when returns the new due time of a task.
func (w *work) when(s shard.Stored) task.When {
	switch {
	case w.Verb == RunNow:
		return task.Now()
	case w.By != 0:
		return task.At(s.Next.Add(w.By))
	}
	return w.When
}

// fail counts a task that failed, and keeps the first error.
func (w *work) fail(id string, err error) {
	w.counts.Failed++
	if w.first == nil {
		w.first = fmt.Errorf("topic %s, ID %q: %w", w.Topic.Name(), shard.ShortID(id), err)
	}
}

// failed returns the error about tasks that failed alone; nil if none did.
func (w *work) failed() error {
	if w.first == nil || w.counts.Failed == 1 {
		return w.first
	}
	return fmt.Errorf("%d tasks failed; the first: %w", w.counts.Failed, w.first)
}

// stays reports whether an error says that a task was delivered or changed in the meantime.
func stays(err error) bool {
	for _, known := range []error{task.ErrNotFound, shard.ErrChanged, shard.ErrLeased, shard.ErrParked, shard.ErrDue} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// away reports whether the next tasks would meet the same error.
func away(err error) bool {
	return errors.Is(err, task.ErrUnavailable) || errors.Is(err, task.ErrUncertain) || shard.Denied(err) ||
		errors.Is(err, context.Canceled)
}
