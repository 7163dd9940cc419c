package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// try carries out what is left of a batch: first in Redis, then the refusals, then the
// answers. It returns why something is still left. since is how long the batch has taken.
func (s *session) try(ctx context.Context, todo batch, since time.Duration) error {
	in := s.in
	err := s.ask(ctx, todo)
	refused := todo.only(func(it *item) bool { return it.refusal != nil })
	if len(refused) > 0 {
		err = cmp.Or(err, in.refuse(ctx, refused, s.exchange))
	}
	ready := todo.only(func(it *item) bool { return it.code != "" })
	if wanted := ready.only((*item).wantsAnswer); len(wanted) > 0 {
		if failed := in.outbox.answer(ctx, wanted); failed != nil {
			if since < in.cfg.pace.answerFor {
				return cmp.Or(err, failed)
			}
			in.unanswered(ctx, failed)
		}
	}
	if why := in.outbox.lost(); why != nil { // only an answer makes RabbitMQ close the channel later
		in.unanswered(ctx, why)
	}
	for _, it := range ready {
		it.done = true
		in.count(it)
	}
	return err
}

func (in *Intake) unanswered(ctx context.Context, why error) {
	in.cfg.Count("intake_answer")
	in.logs.unanswered.Log(ctx, "error", why)
}

// only returns the messages that a condition holds for.
func (b batch) only(holds func(*item) bool) (some batch) {
	for _, it := range b {
		if holds(it) {
			some = append(some, it)
		}
	}
	return some
}

// wantsAnswer reports whether the client waits for an answer. reply_to alone may be meant
// for the consumer of the task.
func (it *item) wantsAnswer() bool {
	return it.asked && it.delivery.ReplyTo != "" && it.delivery.CorrelationId != ""
}

func (in *Intake) count(it *item) {
	if it.refusal != nil {
		in.cfg.Metrics.Refused.WithLabelValues(it.refusal.class).Inc()
		return
	}
	in.cfg.Metrics.Tasks.WithLabelValues(it.verb).Inc()
}

// ask sends the messages to Redis that have no outcome. It makes one call for each verb, all at
// the same time: a batch has no two messages about one ID.
func (s *session) ask(ctx context.Context, todo batch) error {
	todo = todo.only(func(it *item) bool { return it.refusal == nil && it.code == "" })
	if len(todo) == 0 {
		return nil
	}
	for _, it := range todo {
		it.short = false
	}
	if err := s.in.clocked(ctx, todo); err != nil {
		return err
	}
	todo = todo.only(func(it *item) bool { return it.refusal == nil })
	if len(todo) == 0 {
		return nil
	}
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	var stored, cancelled, moved error
	var calls sync.WaitGroup
	calls.Go(func() {
		stored = s.schedule(ctx, todo.only(func(it *item) bool { return it.verb != Cancel && it.verb != Move }))
	})
	calls.Go(func() { cancelled = s.cancel(ctx, todo.only(func(it *item) bool { return it.verb == Cancel })) })
	calls.Go(func() { moved = s.move(ctx, todo.only(func(it *item) bool { return it.verb == Move })) })
	calls.Wait()
	return cmp.Or(stored, cancelled, moved)
}

// clocked does what needs Redis's clock. It refuses absolute due times that are too far ahead, and
// sets the first runs of recurring tasks that have no due time.
func (in *Intake) clocked(ctx context.Context, todo batch) error {
	todo = todo.only(func(it *item) bool {
		_, absolute := it.due.when.Instant()
		return it.verb != Cancel && (absolute || it.rule != nil && it.entry.When.IsZero())
	})
	if len(todo) == 0 {
		return nil
	}
	now, err := in.cfg.Topic.Now(ctx)
	if err != nil {
		return err
	}
	for _, it := range todo {
		it.begin(time.UnixMilli(now))
		if it.due.far(now) {
			it.refusal = &refusal{refusedWhen, fmt.Errorf("header %s: %w", HeaderDue, tooFar())}
		}
	}
	return nil
}

// schedule stores tasks. A repeat has the ops of the first try, so a task whose reply was
// lost is known.
func (s *session) schedule(ctx context.Context, todo batch) error {
	op := shard.NewOp()
	entries := make([]shard.Entry, len(todo))
	for i, it := range todo {
		it.entry.Op = cmp.Or(it.entry.Op, op)
		entries[i] = it.entry
	}
	var failed error
	for i, r := range s.tasks.Schedule(ctx, entries) {
		failed = cmp.Or(failed, todo[i].outcome(r.Due, r.Err))
	}
	return failed
}

func (s *session) cancel(ctx context.Context, todo batch) error {
	ids := make([]string, len(todo))
	for i, it := range todo {
		ids[i] = it.id
	}
	var failed error
	for i, err := range s.tasks.CancelMany(ctx, ids, s.in.cfg.MaxPayload) {
		failed = cmp.Or(failed, todo[i].outcome(0, err))
	}
	return failed
}

func (s *session) move(ctx context.Context, todo batch) error {
	moves := make([]router.Move, len(todo))
	for i, it := range todo {
		moves[i] = router.Move{ID: it.id, When: it.due.when}
	}
	var failed error
	for i, r := range s.tasks.RescheduleMany(ctx, moves, s.in.cfg.MaxPayload) {
		failed = cmp.Or(failed, todo[i].outcome(r.Due, r.Err))
	}
	return failed
}

// outcome takes Redis's answer. It returns an error after which the message is tried again. A
// repeat that finds no task, or another one, doesn't say what the lost copy did. With
// task.ErrReplicas the master has carried it out. A repeat then asks for the same due time. If
// it no longer finds the task, that was delivered, changed or cancelled in the meantime.
func (it *item) outcome(dueAt int64, err error) error {
	missed := errors.Is(err, task.ErrExists) || errors.Is(err, task.ErrNotFound)
	it.maybe = missed && (it.unknown || errors.Is(err, router.ErrRepeated))
	switch {
	case err == nil:
		it.code, it.dueAt = codeOK, dueAt
	case missed && (it.stored > 0 || it.removed):
		it.code, it.dueAt, it.maybe = codeOK, it.stored, false
	case errors.Is(err, task.ErrExists):
		it.code = codeExists
	case errors.Is(err, task.ErrNotFound):
		it.code = codeNotFound
	default:
		it.short = errors.Is(err, task.ErrReplicas)
		it.removed = it.removed || errors.Is(err, router.ErrRemoved)
		it.unknown = it.unknown || it.short || errors.Is(err, task.ErrUncertain)
		if it.short && dueAt > 0 {
			it.stored = dueAt
			it.due.when = task.At(time.UnixMilli(dueAt))
			it.entry.When = it.due.when
		}
		return err
	}
	return nil
}

// patience returns for how long messages may fail before other scanners get them.
func (in *Intake) patience(b batch) time.Duration {
	if b.multiplies() {
		return max(in.cfg.pace.unknown, in.cfg.pace.handOver)
	}
	return in.cfg.pace.handOver
}

// waits records that messages wait because of the error that fails got.
func (in *Intake) waits(ctx context.Context, messages int) {
	in.cfg.Count("intake")
	in.trouble.Store(in.failing)
	in.logs.retried.Log(ctx, "messages", messages, "error", in.Trouble())
}

// fails records why messages failed, and returns the error.
func (in *Intake) fails(err error) error {
	why := err.Error() + in.cfg.Advice(err.Error())
	in.failing = &why
	return err
}
