package router

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// scriptTasks and scriptBytes bound what one script stores, so that it blocks Redis
	// for about a millisecond.
	scriptTasks = 500
	scriptBytes = 1 << 20
)

// Scheduled is the result for one entry.
type Scheduled struct {
	// Due in ms by Redis's clock. It is 0 with an error other than task.ErrReplicas.
	Due int64
	// Err is task.ErrExists for an entry with IfAbsent, task.ErrNotFound for one with
	// IfPresent, task.ErrReplicas, task.ErrUncertain, task.ErrUnavailable, or Redis's. The first
	// two may come with ErrRepeated.
	Err error
}

// Schedule stores tasks, in one round trip with one script for each 500 or so of a shard.
// Entries must have different IDs. For entries that are moving it fences the old shards,
// and asks them for entries with IfAbsent or IfPresent. Then it puts into the new shards,
// and at last deletes from the old ones.
func (r *Router) Schedule(ctx context.Context, entries []shard.Entry) []Scheduled {
	return r.schedule(ctx, entries, nil)
}

// schedule is Schedule for entries that may become unwanted. Such an entry is in no send
// that begins later, and its result means nothing. If wanted is nil, all stay wanted.
func (r *Router) schedule(ctx context.Context, entries []shard.Entry, wanted func(i int) bool) []Scheduled {
	ctx, probation := luascript.OnProbation(ctx)
	s := scheduling{router: r, op: shard.NewOp(), entries: entries, wanted: wanted,
		results: make([]Scheduled, len(entries)), todo: upTo(len(entries)), old: map[int]bool{}}
	t := tries{router: r}
	for t.next(ctx) {
		var puts []shard.Put
		var deadline int64
		if puts, deadline, t.err = s.prepare(ctx, t.placement); t.err == nil {
			t.err = s.finish(ctx, t.placement, r.topic.Put(ctx, t.placement, deadline, puts))
		}
	}
	s.fail(s.todo, t.err)
	lost := probation.CarriedOut()
	for i := range s.results {
		s.results[i].Err = probation.Judge(s.results[i].Err)
		if lost {
			s.results[i].Err = repeated(s.results[i].Err)
		}
	}
	s.leave(ctx, lost)
	return s.results
}

// scheduling is one Router.Schedule under way. It names entries by their indices.
type scheduling struct {
	router  *Router
	op      shard.Op
	entries []shard.Entry
	results []Scheduled
	wanted  func(i int) bool // nil: all are
	todo    []int            // entries without a result
	old     map[int]bool     // of entries with IfPresent: whether an old shard has the task
	batches []*batch         // of the last puts
	// members of the index: of entries in groups, and of versions that these replaced.
	members, went []shard.Member
	joined        int64 // when these members were added, in ms
}

// rejoin is how old marks may be at the begin of a try, in ms. Shards refuse older ones after a
// while.
const rejoin = 60_000

// join notes the entries that are in groups in the index. Those that can't be noted fail. A
// later try may give them new marks. The old members stay, since their versions may be stored.
func (s *scheduling) join(ctx context.Context) {
	if !grouped(s.entries) {
		return
	}
	now, err := s.router.topic.Now(ctx)
	if err != nil {
		s.fail(s.todo, err)
		s.todo = nil
		return
	}
	if s.members != nil && now-s.joined < rejoin {
		return
	}
	members, errs := s.router.join(ctx, now, s.entries)
	s.members, s.joined = members, now
	s.todo = slices.DeleteFunc(s.todo, func(i int) bool {
		s.results[i].Err = errs[i]
		return errs[i] != nil
	})
}

// leave removes members of the index whose versions are replaced, and those whose versions
// certainly weren't stored. If an answer was lost, a refused version may have been stored before, and
// moved since.
func (s *scheduling) leave(ctx context.Context, lost bool) {
	for i, m := range s.members {
		if err := s.results[i].Err; !lost && m.Group != "" && err != nil && !unsettled(err) {
			s.went = append(s.went, m)
		}
	}
	_ = s.router.topic.Leave(ctx, s.went) // a sweep removes what stays
}

// unsettled reports whether a task may be stored in spite of the error.
func unsettled(err error) bool {
	return errors.Is(err, task.ErrUncertain) || errors.Is(err, task.ErrReplicas)
}

// prepare returns the puts under one placement for the entries that are left, and their
// deadline. Before a put of moving entries their old shards are fenced. An error that is
// outdated calls for a newer placement or time.
func (s *scheduling) prepare(ctx context.Context, p shard.Placement) (puts []shard.Put, deadline int64, err error) {
	s.join(ctx)
	if p.Phase == shard.Migrating {
		if err := s.beforeMove(ctx, p); err != nil {
			return nil, 0, err
		}
	}
	if deadline, err = s.router.scripts.Deadline(ctx); err != nil {
		return nil, 0, err
	}
	s.batches = s.group(p, s.todo, shard.Placement.New)
	puts = make([]shard.Put, len(s.batches))
	for i, b := range s.batches {
		puts[i] = s.putOf(b)
	}
	return puts, deadline, nil
}

// finish takes over the results of the puts, and removes the old copies of what they
// stored. If shards refuse the placement or the deadline, todo has their entries.
func (s *scheduling) finish(ctx context.Context, p shard.Placement, results []shard.PutResult) (refusal error) {
	var moving []int
	s.todo = nil
	for i, r := range results {
		b := s.batches[i]
		switch {
		case outdated(r.Err):
			s.todo, refusal = append(s.todo, b.entries...), r.Err
		case errors.Is(r.Err, task.ErrReplicas):
			// A failover may still undo the put, so the old copies must stay.
			s.stored(b, r)
		case r.Err != nil:
			s.fail(b.entries, r.Err)
		default:
			moving = append(moving, s.stored(b, r)...)
		}
	}
	s.afterMove(ctx, p, moving)
	return refusal
}

// beforeMove fences the old shards of entries that are moving. Two kinds of entries get
// their results here. The tasks of some, with IfAbsent, lie at their old shards; the old
// shards of others can't be reached. All others stay in todo. If a shard refuses the
// placement, beforeMove returns its error.
func (s *scheduling) beforeMove(ctx context.Context, p shard.Placement) error {
	var left, moving, asked []int
	for _, i := range s.todo {
		e := &s.entries[i]
		switch {
		case !p.Moving(e.ID):
			left = append(left, i)
		case e.IfAbsent || e.IfPresent:
			asked = append(asked, i)
		default:
			moving = append(moving, i)
		}
	}
	shown, again, refusal := s.showOld(ctx, p, moving)
	free, refused, err := s.askOld(ctx, p, asked)
	if refusal == nil {
		refusal = err
	}
	s.todo = slices.Concat(again, refused, left, shown, free)
	return refusal
}

// showOld shows the placement to the old shards of entries. It returns the entries whose
// old shards have seen it. If shards refuse it, again has their entries.
func (s *scheduling) showOld(ctx context.Context, p shard.Placement, todo []int) (shown, again []int, refusal error) {
	olds := make([]int, len(todo))
	for i, at := range todo {
		olds[i] = p.Old(s.entries[at].ID)
	}
	errs := s.router.show(ctx, p, olds)
	for i, at := range todo {
		switch err := errs[olds[i]]; {
		case err == nil:
			shown = append(shown, at)
		case outdated(err):
			again, refusal = append(again, at), err
		default:
			s.fail([]int{at}, err)
		}
	}
	return shown, again, refusal
}

// askOld asks the old shards for tasks of entries with IfAbsent and IfPresent. It gives
// entries with IfAbsent whose tasks lie there their results, and returns all others as free.
// A record with the op of this call was put before the change began; a mover brings it
// along. A record that can't be read isn't from this call.
func (s *scheduling) askOld(ctx context.Context, p shard.Placement, todo []int) (free, again []int, refusal error) {
	read, again, refusal := s.router.readOld(ctx, p, s.group(p, todo, shard.Placement.Old), s.idOf)
	for _, old := range read {
		there := old.record
		s.old[old.of] = there != nil
		switch {
		case old.err != nil:
			s.results[old.of] = Scheduled{Err: old.err}
		case there != nil && there.Op == string(s.opOf(old.of)):
			s.results[old.of] = Scheduled{Due: there.Due.UnixMilli()}
		case there == nil, s.entries[old.of].IfPresent:
			free = append(free, old.of)
		default:
			s.results[old.of] = Scheduled{Err: task.ErrExists}
		}
	}
	return free, again, refusal
}

// afterMove removes the old copies of entries that are stored in their new shards.
func (s *scheduling) afterMove(ctx context.Context, p shard.Placement, moving []int) {
	if len(moving) == 0 {
		return
	}
	olds := s.group(p, moving, shard.Placement.Old)
	for i, err := range s.router.closeOld(ctx, p, namesOf(olds, s.idOf)...) {
		if err != nil { // they are stored, and their old copies may be too
			s.fail(olds[i].entries, luascript.Uncertain(err))
		}
	}
}

func (s *scheduling) opOf(i int) shard.Op { return cmp.Or(s.entries[i].Op, s.op) }

func (s *scheduling) modeOf(p shard.Placement, i int) shard.Mode {
	switch e := &s.entries[i]; {
	case e.IfAbsent:
		return shard.Absent
	case e.IfPresent && p.Moving(e.ID) && s.old[i]:
		return shard.PresentAtOld
	case e.IfPresent:
		return shard.Present
	}
	return shard.Always
}

func (s *scheduling) group(p shard.Placement, todo []int, of shardOf) []*batch {
	return group(todo, scriptTasks, func(i int) batchKey {
		e := &s.entries[i]
		return batchKey{shard: of(p, e.ID), op: s.opOf(i), mode: s.modeOf(p, i), moving: p.Moving(e.ID)}
	}, func(i int) int { return len(s.entries[i].Body) })
}

func (s *scheduling) idOf(i int) string { return s.entries[i].ID }

func (s *scheduling) putOf(b *batch) shard.Put {
	put := shard.Put{Shard: b.key.shard, Op: b.key.op, Mode: b.key.mode, Moving: b.key.moving, Term: s.router.term,
		Entries: make([]shard.Entry, len(b.entries))}
	if put.Moving {
		put.Cancelled = s.router.cancelled()
	}
	for i, at := range b.entries {
		put.Entries[i] = s.entries[at]
	}
	if s.wanted != nil {
		put.Wanted = func(i int) bool { return s.wanted(b.entries[i]) }
	}
	return put
}

// stored takes over the results of a put, and returns the entries whose old copies must
// go.
func (s *scheduling) stored(b *batch, r shard.PutResult) (moving []int) {
	s.went = append(s.went, r.Left...)
	for i, at := range b.entries {
		if r.Due[i] == 0 {
			s.results[at] = Scheduled{Err: task.ErrExists}
			if b.key.mode != shard.Absent {
				s.results[at].Err = task.ErrNotFound
			}
			continue
		}
		s.results[at] = Scheduled{r.Due[i], r.Err}
		if b.key.moving {
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
