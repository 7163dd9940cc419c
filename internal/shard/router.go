package shard

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Router carries out operations on a topic's tasks by their IDs. Its methods say which
// scripts are sent to which shards, and in which order, while the shard count changes.
// docs/protocol.md says the same for other languages, and test/model checks each of these
// orders against the promises. A Router is safe for concurrent use.
//
// All operations share two rules. A shard that has seen a newer placement than the
// router's refuses the script, and the operation starts over under the newer one (tries).
// While a task is moving, its old shard is shown the placement before the new one is
// written, and loses its copy last.
type Router struct {
	topic    *Topic
	scripts  *luascript.Client
	known    known
	batchers batchers
}

// Router returns the router of a topic: the same one each time.
func (s *Store) Router(topic string) *Router {
	s.routing.Lock()
	defer s.routing.Unlock()
	r := s.routers[topic]
	if r == nil {
		r = &Router{
			topic:    s.Topic(topic),
			scripts:  s.scripts,
			known:    known{fenced: map[int]Placement{}},
			batchers: batchers{beside: gatherBeside, patience: gatherPatience, all: map[int]*batcher{}},
		}
		s.routers[topic] = r
	}
	return r
}

// Reschedule gives a stored task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns task.ErrNotFound. It fences and reads
// at the old shard, reschedules in the new one, and deletes from the old one. The new
// shard takes what was read if it never had the task.
//
// If the task isn't stored, a consumer may have it. Then Reschedule leaves a note, and
// also moves what the consumer stored before it could see the note. The note's time is
// when the new shard missed the task, by the clock that counts for its due time.
func (r *Router) Reschedule(ctx context.Context, id string, when When) (due int64, err error) {
	ctx, probation := luascript.OnProbation(ctx)
	m := Move{Op: NewOp(), ID: id, When: when}
	due, err = r.reschedule(ctx, m)
	var missing *MissingError
	if errors.As(err, &missing) {
		luascript.CarriedOut(ctx) // the answer to the note may be lost
		if err := r.topic.NoteMoved(ctx, id, missing.At, when.MillisFrom(missing.At)); err != nil {
			return 0, probation.Judge(err)
		}
		due, err = r.reschedule(ctx, m)
	}
	return due, probation.Judge(err)
}

func (r *Router) reschedule(ctx context.Context, m Move) (due int64, err error) {
	t := tries{router: r}
	for t.next(ctx) {
		due, t.err = r.rescheduleUnder(ctx, t.placement, m)
	}
	return due, t.err
}

func (r *Router) rescheduleUnder(ctx context.Context, p Placement, m Move) (int64, error) {
	deadline, err := r.scripts.Deadline(ctx)
	if err != nil {
		return 0, err
	}
	if !p.Moving(m.ID) {
		return r.topic.Shard(p.New(m.ID)).Reschedule(ctx, p, deadline, m)
	}
	old := p.Old(m.ID)
	there, err := r.topic.Shard(old).Fence(ctx, p, m.ID)
	if err != nil {
		return 0, err
	}
	if there[0] != nil && there[0].Op == string(m.Op) {
		return there[0].Due.UnixMilli(), nil // stored before the change began; a mover brings it along
	}
	m.Moving, m.Fallback = true, there[0]
	due, err := r.topic.Shard(p.New(m.ID)).Reschedule(ctx, p, deadline, m)
	gone := errors.Is(err, task.ErrNotFound)
	if err != nil && !gone || gone && m.Fallback == nil {
		return due, err
	}
	luascript.CarriedOut(ctx)
	closing := r.closeOld(ctx, p, Names{old, []string{m.ID}})[0]
	switch {
	case errors.Is(closing, task.ErrReplicas):
		return due, closing
	case closing != nil:
		return 0, closing
	}
	return due, err
}

// Get reads a task, or returns task.ErrNotFound. It reads at the old shard, then at the
// new one.
func (r *Router) Get(ctx context.Context, id string) (s Stored, err error) {
	t := tries{router: r}
	for t.next(ctx) {
		for _, at := range t.placement.Where(id) {
			if s, t.err = r.topic.Shard(at).Read(ctx, t.placement, id); !errors.Is(t.err, task.ErrNotFound) {
				break
			}
		}
	}
	return s, Unasked(t.err)
}
