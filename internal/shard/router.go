package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/duefleet/duefleet/task"
)

// Router carries out operations on a topic's tasks by their IDs. Its methods say which
// scripts are sent to which shards, and in which order, while the shard count changes.
// docs/protocol.md says the same for other languages, and test/model checks each of these
// orders against the promises. A Router is safe for concurrent use.
//
// All operations share two rules. A shard that has seen a newer placement than the
// router's refuses the script, and the operation starts over under the newer one (retry).
// While a task is moving, its old shard is shown the placement before the new one is
// written, and loses its copy last.
type Router struct {
	*Topic
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
			Topic:    s.Topic(topic),
			known:    known{fenced: map[int]Placement{}},
			batchers: batchers{beside: gatherBeside, patience: gatherPatience, all: map[int]*batcher{}},
		}
		s.routers[topic] = r
	}
	return r
}

// Where returns the shards where a task may lie, the old one first. Tasks move from there
// to the new one and never back, so a caller that asks in this order misses none.
func (p Placement) Where(id string) []int {
	if p.Moving(id) {
		return []int{p.Old(id), p.New(id)}
	}
	return []int{p.New(id)}
}

// InOrder returns all shards that may hold tasks. Shards that tasks move away from come
// first: the higher ones if the shard count shrinks, else the lower ones.
func (p Placement) InOrder() []int {
	all := make([]int, p.Scanned())
	for i := range all {
		all[i] = i
	}
	if p.Previous > p.Shards {
		slices.Reverse(all)
	}
	return all
}

// Scheduled is the result for one entry.
type Scheduled struct {
	// Due in ms by Redis's clock. It is 0 with an error other than task.ErrReplicas.
	Due int64
	// Err is task.ErrExists for an entry with IfAbsent, task.ErrReplicas,
	// task.ErrUncertain, task.ErrUnavailable, or Redis's.
	Err error
}

// Schedule stores tasks, in one round trip with one script for each 500 or so of a shard.
// Entries must have different IDs. For entries that are moving it fences the old shards,
// and asks them for entries with IfAbsent. Then it puts into the new shards, and at last
// deletes from the old ones.
func (r *Router) Schedule(ctx context.Context, entries []Entry) []Scheduled {
	return r.schedule(ctx, entries, nil)
}

// schedule is Schedule for entries that may become unwanted. Such an entry is in no send
// that begins later, and its result means nothing. If wanted is nil, all stay wanted.
func (r *Router) schedule(ctx context.Context, entries []Entry, wanted func(i int) bool) []Scheduled {
	ctx, doubt := withDoubt(ctx)
	s := scheduling{Router: r, op: NewOp(), entries: entries, wanted: wanted, results: make([]Scheduled, len(entries))}
	todo := make([]int, len(entries))
	for i := range todo {
		todo[i] = i
	}
	err := r.retry(ctx, func(p Placement) error {
		var err error
		todo, err = s.attempt(ctx, p, todo)
		return err
	})
	s.fail(todo, err)
	for i := range s.results {
		s.results[i].Err = doubt.judge(s.results[i].Err)
	}
	return s.results
}

// Cancel removes a task in any state, or returns task.ErrNotFound. It deletes from the
// old shard, then from the new one, which notes the ID. A consumer may have the task, or
// may have had it. Then Cancel leaves it a note, and also removes what the consumer
// stored before it could see the note.
func (r *Router) Cancel(ctx context.Context, id string) error {
	ctx, doubt := withDoubt(ctx)
	return doubt.judge(r.cancel(ctx, id))
}

func (r *Router) cancel(ctx context.Context, id string) error {
	gone, err := r.remove(ctx, id)
	if err == nil && (gone.History || gone.Tried || !gone.There) {
		err = r.noteCancelled(ctx, id, gone.At)
		if err == nil {
			var more Withdrawn
			more, err = r.remove(ctx, id)
			gone.There = gone.There || more.There
		}
	}
	if err == nil && !gone.There {
		err = task.ErrNotFound
	}
	return err
}

// remove deletes a task wherever it lies. Its result covers all tries.
func (r *Router) remove(ctx context.Context, id string) (gone Withdrawn, err error) {
	err = r.retry(ctx, func(p Placement) error {
		for _, at := range p.Where(id) {
			notAfter, err := r.NotAfter(ctx)
			if err != nil {
				return err
			}
			met, err := r.Shard(at).Withdraw(ctx, p, notAfter, p.Moving(id) && at == p.New(id), id)
			gone.There, gone.Tried = gone.There || met.There, gone.Tried || met.Tried
			gone.History, gone.At = gone.History || met.History, max(gone.At, met.At)
			if err != nil {
				return err
			}
			carriedOut(ctx)
		}
		return nil
	})
	return gone, err
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
	ctx, doubt := withDoubt(ctx)
	due, err = r.move(ctx, id, when)
	return due, doubt.judge(err)
}

func (r *Router) move(ctx context.Context, id string, when When) (due int64, err error) {
	m := Move{Op: NewOp(), ID: id, When: when}
	due, err = r.reschedule(ctx, m)
	var missing *missingError
	if errors.As(err, &missing) {
		carriedOut(ctx) // the answer to the note may be lost
		if err := r.noteMoved(ctx, id, missing.at, when.millisFrom(missing.at)); err != nil {
			return 0, err
		}
		due, err = r.reschedule(ctx, m)
	}
	return due, err
}

func (r *Router) reschedule(ctx context.Context, m Move) (due int64, err error) {
	err = r.retry(ctx, func(p Placement) error {
		var err error
		due, err = r.rescheduleUnder(ctx, p, m)
		return err
	})
	return due, err
}

func (r *Router) rescheduleUnder(ctx context.Context, p Placement, m Move) (int64, error) {
	notAfter, err := r.NotAfter(ctx)
	if err != nil {
		return 0, err
	}
	if !p.Moving(m.ID) {
		return r.Topic.Shard(p.New(m.ID)).Reschedule(ctx, p, notAfter, m)
	}
	old := p.Old(m.ID)
	there, err := r.Shard(old).Fence(ctx, p, m.ID)
	if err != nil {
		return 0, err
	}
	if there[0] != nil && there[0].Op == string(m.Op) {
		return there[0].Due.UnixMilli(), nil // stored before the change began; a mover brings it along
	}
	m.Moving, m.Fallback = true, there[0]
	due, err := r.Topic.Shard(p.New(m.ID)).Reschedule(ctx, p, notAfter, m)
	gone := errors.Is(err, task.ErrNotFound)
	if err != nil && !gone || gone && m.Fallback == nil {
		return due, err
	}
	carriedOut(ctx)
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
	err = r.retry(ctx, func(p Placement) error {
		var err error
		for _, at := range p.Where(id) {
			if s, err = r.Shard(at).Read(ctx, p, id); !errors.Is(err, task.ErrNotFound) {
				return err
			}
		}
		return err
	})
	return s, Unasked(err)
}
