package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// moveAtOnce is how many tasks RescheduleMany handles before it starts the next ones.
	moveAtOnce = 1000
	// moveBytes limits the payloads that it reads from old shards at once.
	moveBytes = 64 << 20
)

// Move asks for a new due time of one task.
type Move struct {
	ID   string
	When task.When
}

// Reschedule gives a stored task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns task.ErrNotFound, perhaps with
// ErrRepeated. It fences and reads at the old shard, reschedules in the new one, and deletes
// from the old one. The new shard takes what was read if it never had the task.
//
// If there is no task, nothing changes, although a consumer may have it.
func (r *Router) Reschedule(ctx context.Context, id string, when task.When) (due int64, err error) {
	one := r.reschedule(ctx, []Move{{id, when}})[0]
	return one.Due, one.Err
}

// RescheduleMany does what Reschedule does, with a few round trips for each 1000 tasks. The
// results are in the order of the moves. A later move of the same ID wins.
// maxPayload is the largest payload, in bytes. If Redis can't be reached or doesn't answer,
// RescheduleMany doesn't start the remaining moves: they get task.ErrUnavailable.
func (r *Router) RescheduleMany(ctx context.Context, moves []Move, maxPayload int) []Scheduled {
	return inChunks(moves, maxPayload, func(some []Move) []Scheduled { return r.reschedule(ctx, some) })
}

// inChunks calls do with a number of moves whose tasks fit into memory. If Redis
// couldn't be reached, the rest isn't started.
func inChunks[T any](moves []T, maxPayload int, do func(some []T) []Scheduled) []Scheduled {
	results := make([]Scheduled, 0, len(moves))
	var away error
	for some := range slices.Chunk(moves, max(1, min(moveAtOnce, moveBytes/max(maxPayload, 1)))) {
		if away != nil {
			results = append(results, slices.Repeat([]Scheduled{{Err: away}}, len(some))...)
			continue
		}
		now := do(some)
		if at := slices.IndexFunc(now, func(s Scheduled) bool { return unreached(s.Err) }); at >= 0 {
			away = notBegun(now[at].Err)
		}
		results = append(results, now...)
	}
	return results
}

// rescheduling is one reschedule under way. It names moves by their indexes.
type rescheduling struct {
	router  *Router
	moves   []shard.Move
	results []Scheduled
	sent    []bool // a script had the move, which may have been carried out
	lost    bool   // a reply to their scripts was lost
}

func (r *Router) reschedule(ctx context.Context, moves []Move) []Scheduled {
	all := make([]shard.Move, len(moves))
	for i, m := range moves {
		all[i] = shard.Move{Op: shard.NewOp(), ID: m.ID, When: m.When, Term: r.term}
	}
	return r.move(ctx, all)
}

func (r *Router) move(ctx context.Context, moves []shard.Move) []Scheduled {
	ctx, probation := luascript.OnProbation(ctx)
	s := rescheduling{router: r, moves: moves, results: make([]Scheduled, len(moves)),
		sent: make([]bool, len(moves))}
	todo := upTo(len(moves))
	t := tries{router: r}
	for t.next(ctx) {
		todo, t.err = s.attempt(ctx, t.placement, todo)
	}
	s.fail(todo, t.err)
	for i := range s.results {
		judge := luascript.Unasked
		if s.sent[i] {
			judge = probation.Judge
		}
		s.results[i].Err = judge(s.results[i].Err)
		if s.sent[i] && s.lost {
			s.results[i].Err = repeated(s.results[i].Err)
		}
	}
	return s.results
}

// attempt reschedules under one placement. It returns the moves to repeat under a newer
// placement, and the refusal.
func (s *rescheduling) attempt(ctx context.Context, p shard.Placement, todo []int) (again []int, refusal error) {
	var moving, ready []int
	for _, i := range todo {
		m := &s.moves[i]
		m.Shard, m.Moving, m.Fallback = p.New(m.ID), p.Moving(m.ID), nil
		if m.Moving {
			moving = append(moving, i)
		} else {
			ready = append(ready, i)
		}
	}
	shown, again, refusal := s.readOld(ctx, p, moving)
	ready = append(ready, shown...)
	if len(ready) == 0 {
		return again, refusal
	}
	slices.Sort(ready) // moves of one ID stay in their order
	deadline, err := s.router.scripts.Deadline(ctx)
	if err != nil {
		return append(again, ready...), err
	}
	moves := make([]shard.Move, len(ready))
	for n, i := range ready {
		moves[n] = s.moves[i]
	}
	var there []int // moves whose old copies must go
	for n, r := range s.send(ctx, p, deadline, moves) {
		i := ready[n]
		s.sent[i] = s.sent[i] || !r.Unsent
		if outdated(r.Err) {
			again, refusal = append(again, i), r.Err
			continue
		}
		s.results[i] = Scheduled{r.Due, r.Err}
		// After ErrReplicas a failover may still undo the move, so the old copy must stay.
		gone := errors.Is(r.Err, task.ErrNotFound)
		if moves[n].Moving && (r.Err == nil || gone && moves[n].Fallback != nil) {
			there = append(there, i)
		}
	}
	s.closeOld(ctx, p, there)
	return again, refusal
}

// send sends the scripts of moves, and notes whether a reply was lost.
func (s *rescheduling) send(ctx context.Context, p shard.Placement, deadline int64,
	moves []shard.Move) []shard.MoveResult {
	sending, probation := luascript.OnProbation(ctx) // ctx's doesn't tell a lost reply from another step
	results := s.router.topic.Reschedule(sending, p, deadline, moves)
	if probation.CarriedOut() {
		s.lost = true
		luascript.CarriedOut(ctx)
	}
	return results
}

// readOld shows the placement to the old shards of moves and reads their tasks there. It
// returns the moves that are ready for their new shards. If shards refuse the placement,
// again has their moves. A task with the op of its move was rescheduled before the change
// began; a mover brings it along.
func (s *rescheduling) readOld(ctx context.Context, p shard.Placement, todo []int) (ready, again []int, refusal error) {
	read, again, refusal := s.router.readOld(ctx, p, s.olds(p, todo), s.idOf)
	for _, old := range read {
		there := old.record
		switch {
		case old.err != nil:
			s.results[old.of] = Scheduled{Err: old.err}
			continue
		case there == nil:
		case there.Err != nil:
			s.results[old.of] = Scheduled{Err: there.Err}
			continue
		case there.Op == string(s.moves[old.of].Op):
			s.results[old.of] = Scheduled{Due: there.Due.UnixMilli()}
			continue
		default:
			s.moves[old.of].Fallback = there
		}
		ready = append(ready, old.of)
	}
	return ready, again, refusal
}

// closeOld removes the old copies of moves. The task is in its new shard by then, or was
// there.
func (s *rescheduling) closeOld(ctx context.Context, p shard.Placement, todo []int) {
	if len(todo) == 0 {
		return
	}
	luascript.CarriedOut(ctx)
	olds := s.olds(p, todo)
	for n, err := range s.router.closeOld(ctx, p, namesOf(olds, s.idOf)...) {
		for _, i := range olds[n].entries {
			switch {
			case errors.Is(err, task.ErrReplicas):
				s.results[i].Err = err
			case err != nil:
				s.results[i] = Scheduled{Err: luascript.Uncertain(err)}
			}
		}
	}
}

// olds groups moves by their old shards.
func (s *rescheduling) olds(p shard.Placement, todo []int) []*batch {
	return group(todo, scriptTasks, func(i int) batchKey { return batchKey{shard: p.Old(s.moves[i].ID)} },
		func(int) int { return 0 })
}

func (s *rescheduling) idOf(i int) string { return s.moves[i].ID }

func (s *rescheduling) fail(of []int, err error) {
	for _, i := range of {
		s.results[i] = Scheduled{Err: err}
	}
}

// notBegun returns the error of tasks that weren't begun because an earlier one of the same
// call failed with cause.
func notBegun(cause error) error {
	// %s, not %w: the cause may be ErrUncertain
	return fmt.Errorf("%w: an earlier task of the same call failed, this one was not begun: %s", task.ErrUnavailable,
		cause.Error())
}
