package shard

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/task"
)

const (
	// scriptTasks and scriptBytes bound what one script stores, so that it blocks Redis
	// for about a millisecond.
	scriptTasks = 500
	scriptBytes = 1 << 20
)

// scheduling is one Router.Schedule under way. It names entries by their indices.
type scheduling struct {
	*Router
	op      Op
	entries []Entry
	results []Scheduled
	wanted  func(i int) bool // nil: all are
}

// attempt stores entries under one placement. It returns the entries to store under a
// newer one, and the refusal that calls for it.
func (s *scheduling) attempt(ctx context.Context, p Placement, todo []int) (again []int, refusal error) {
	if p.Phase == Migrating {
		if todo, again, refusal = s.beforeMove(ctx, p, todo); refusal != nil {
			return append(again, todo...), refusal
		}
	}
	notAfter, err := s.NotAfter(ctx)
	if err != nil {
		return todo, err
	}
	shares := s.share(p, todo, Placement.New)
	puts := make([]Put, len(shares))
	for i, sh := range shares {
		puts[i] = s.put(sh)
	}
	var moving []int
	for i, r := range s.Put(ctx, p, notAfter, puts) {
		sh := shares[i]
		switch {
		case s.outdated(r.Err):
			again, refusal = append(again, sh.entries...), r.Err
		case errors.Is(r.Err, task.ErrReplicas):
			// A failover may still undo the put, so the old copies must stay.
			s.stored(sh, r)
		case r.Err != nil:
			s.fail(sh.entries, r.Err)
		default:
			moving = append(moving, s.stored(sh, r)...)
		}
	}
	s.afterMove(ctx, p, moving)
	return again, refusal
}

// beforeMove fences the old shards of entries that are moving, and returns the entries to
// put as left. Two kinds of entries get their results here: entries with IfAbsent that
// lie at their old shards, and entries whose old shards can't be reached. If shards
// refuse the placement, again has their entries.
func (s *scheduling) beforeMove(ctx context.Context, p Placement, todo []int) (left, again []int, refusal error) {
	var moving, asked []int
	for _, i := range todo {
		e := &s.entries[i]
		switch {
		case !p.Moving(e.ID):
			left = append(left, i)
		case e.IfAbsent:
			asked = append(asked, i)
		default:
			moving = append(moving, i)
		}
	}
	shown, again, refusal := s.showOld(ctx, p, moving)
	free, refused, err := s.absentAtOld(ctx, p, asked)
	if refusal == nil {
		refusal = err
	}
	return append(append(left, shown...), free...), append(again, refused...), refusal
}

// showOld shows the placement to the old shards of entries. It returns the entries whose
// old shards have seen it. If shards refuse it, again has their entries.
func (s *scheduling) showOld(ctx context.Context, p Placement, todo []int) (shown, again []int, refusal error) {
	olds := make([]int, len(todo))
	for i, at := range todo {
		olds[i] = p.Old(s.entries[at].ID)
	}
	errs := s.show(ctx, p, olds...)
	for i, at := range todo {
		switch err := errs[olds[i]]; {
		case err == nil:
			shown = append(shown, at)
		case s.outdated(err):
			again, refusal = append(again, at), err
		default:
			s.fail([]int{at}, err)
		}
	}
	return shown, again, refusal
}

// absentAtOld gives their results to entries whose tasks lie at their old shards, and
// returns the others as free. A record with the op of this call was put before the change
// began; a mover brings it along. A record that can't be read isn't from this call.
func (s *scheduling) absentAtOld(ctx context.Context, p Placement, todo []int) (free, again []int, refusal error) {
	if len(todo) == 0 {
		return nil, nil, nil
	}
	shares := s.share(p, todo, Placement.Old)
	for i, fenced := range s.FenceAll(ctx, p, s.names(shares)) {
		sh := shares[i]
		switch {
		case s.outdated(fenced.Err):
			again, refusal = append(again, sh.entries...), fenced.Err
			continue
		case fenced.Err != nil:
			s.fail(sh.entries, fenced.Err)
			continue
		}
		for j, there := range fenced.Records {
			at := sh.entries[j]
			switch {
			case there == nil:
				free = append(free, at)
			case there.Op == string(s.op):
				s.results[at] = Scheduled{Due: there.Due.UnixMilli()}
			default:
				s.results[at] = Scheduled{Err: task.ErrExists}
			}
		}
	}
	return free, again, refusal
}

// afterMove removes the old copies of entries that are stored in their new shards.
func (s *scheduling) afterMove(ctx context.Context, p Placement, moving []int) {
	if len(moving) == 0 {
		return
	}
	shares := s.share(p, moving, Placement.Old)
	for i, err := range s.closeOld(ctx, p, s.names(shares)...) {
		if err != nil { // they are stored, and their old copies may be too
			s.fail(shares[i].entries, uncertain(err))
		}
	}
}

// share is the entries that one script takes.
type share struct {
	shard   int
	absent  bool
	moving  bool
	entries []int
	bytes   int
}

// share groups entries by one of their shards and by the arguments that a script takes
// only once. It cuts the groups to the size that one script takes.
func (s *scheduling) share(p Placement, todo []int, shardOf func(p Placement, id string) int) []*share {
	type key struct {
		shard          int
		absent, moving bool
	}
	open := map[key]*share{}
	var all []*share
	for _, i := range todo {
		e := &s.entries[i]
		k := key{shardOf(p, e.ID), e.IfAbsent, p.Moving(e.ID)}
		sh := open[k]
		if sh == nil || len(sh.entries) == scriptTasks || sh.bytes+len(e.Body) > scriptBytes {
			sh = &share{shard: k.shard, absent: k.absent, moving: k.moving}
			open[k] = sh
			all = append(all, sh)
		}
		sh.entries = append(sh.entries, i)
		sh.bytes += len(e.Body)
	}
	return all
}

func (s *scheduling) names(shares []*share) []Names {
	all := make([]Names, len(shares))
	for i, sh := range shares {
		all[i] = Names{Shard: sh.shard, IDs: make([]string, len(sh.entries))}
		for j, at := range sh.entries {
			all[i].IDs[j] = s.entries[at].ID
		}
	}
	return all
}

func (s *scheduling) put(sh *share) Put {
	put := Put{Shard: sh.shard, Op: s.op, Absent: sh.absent, Moving: sh.moving, Entries: make([]Entry, len(sh.entries))}
	for i, at := range sh.entries {
		put.Entries[i] = s.entries[at]
	}
	if s.wanted != nil {
		put.Wanted = func(i int) bool { return s.wanted(sh.entries[i]) }
	}
	return put
}

// stored takes over the results of a put, and returns the entries whose old copies must
// go.
func (s *scheduling) stored(sh *share, r PutResult) (moving []int) {
	for i, at := range sh.entries {
		if r.Due[i] == 0 {
			s.results[at] = Scheduled{Err: task.ErrExists}
			continue
		}
		s.results[at] = Scheduled{r.Due[i], r.Err}
		if sh.moving {
			moving = append(moving, at)
		}
	}
	return moving
}

func (s *scheduling) fail(of []int, err error) {
	for _, at := range of {
		s.results[at] = Scheduled{Err: err}
	}
}
