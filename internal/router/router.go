// Package router carries out operations on tasks by their IDs. It chooses the shards and
// the order of the scripts, also while the shard count changes.
package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
)

// Router carries out operations on a topic's tasks by their IDs. Its methods say which
// scripts are sent to which shards, and in which order, while the shard count changes.
// docs/protocol.md has them in a table, and test/model checks each of these orders against
// the promises. A Router is safe for concurrent use.
//
// All operations share two rules. A shard that has seen a newer placement than the
// router's refuses the script, and the operation starts over under the newer one (tries).
// While a task is moving, its old shard is shown the placement before the new one is
// written, and loses its copy last.
type Router struct {
	topic    *shard.Topic
	scripts  *luascript.Client
	term     shard.Term // of the intake; 0: it isn't the intake's
	latest   shard.Term // when term began
	known    known
	batchers batchers
}

// Routers are the routers of a store, one for each topic. They are safe for concurrent use.
type Routers struct {
	store *shard.Store
	mu    sync.Mutex
	all   map[string]*Router // by topic
}

// New returns the routers of a store.
func New(store *shard.Store) *Routers {
	return &Routers{store: store, all: map[string]*Router{}}
}

// Topic returns the router of a topic: the same one each time.
func (rs *Routers) Topic(name string) *Router {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[name]
	if r == nil {
		r = newRouter(rs.store.Topic(name))
		rs.all[name] = r
	}
	return r
}

func newRouter(topic *shard.Topic) *Router {
	return &Router{
		topic:    topic,
		scripts:  topic.Store().Scripts(),
		known:    known{fenced: map[int]shard.Placement{}},
		batchers: batchers{beside: gatherBeside, patience: gatherPatience, all: map[int]*batcher{}},
	}
}

// Now estimates Redis's clock, in ms. Its error matches task.ErrUnavailable if Redis could
// not be asked.
func (rs *Routers) Now(ctx context.Context) (int64, error) {
	now, err := rs.store.Now(ctx)
	return now, luascript.Unasked(err)
}

// maxRestarts limits how often one operation starts over because the placement changed. A
// change of the shard count takes two steps, so the limit is far above what even many
// changes in a row need.
const maxRestarts = 100

// known is a router's last known placement of its topic. It may be outdated; a shard that
// has seen a newer one refuses it.
type known struct {
	mu        sync.Mutex
	placement shard.Placement         // Epoch 0: none read yet
	fenced    map[int]shard.Placement // by shard: a placement that its fence has seen
	cancelled int64                   // the last cancel of these shards by then, in ms
}

// Known returns the last known placement. Its Epoch is 0 if there is none.
func (r *Router) Known() shard.Placement {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return r.known.placement
}

// Assume sets the known placement to p, which may be an outdated one.
func (r *Router) Assume(p shard.Placement) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.placement = p
}

func (r *Router) refresh(ctx context.Context) (shard.Placement, error) {
	p, err := r.topic.Placement(ctx)
	if err != nil {
		r.scripts.Relearn(ctx)
		r.Assume(shard.Placement{})
		return p, r.topic.Store().Registry().Suggest(ctx, r.topic.Name(), err)
	}
	r.Assume(p)
	return p, nil
}

// tries are the tries of one operation, each under a placement. After a shard has refused
// the placement or the deadline as outdated, the operation starts over:
//
//	t := tries{router: r}
//	for t.next(ctx) {
//		t.err = operation(ctx, t.placement)
//	}
//	return t.err
type tries struct {
	router    *Router
	placement shard.Placement
	begun     int
	err       error // of the last try
}

// next reports whether there is to be another try. It sets its placement: the known one,
// or a newer one after a refusal.
func (t *tries) next(ctx context.Context) bool {
	switch {
	case t.begun == 0:
		if t.placement = t.router.Known(); t.placement.Epoch == 0 {
			t.placement, t.err = t.router.refresh(ctx)
		}
	case !outdated(t.err):
		return false
	case t.begun == maxRestarts:
		t.err = fmt.Errorf("topic %s: refused %d times during one operation: %w", t.router.topic.Name(), maxRestarts, t.err)
		return false
	default:
		t.placement, t.err = t.router.renew(ctx, t.err)
	}
	t.begun++
	return t.err == nil
}

// outdated reports whether an operation must start over, because its placement or its
// deadline was outdated, or because a shard hasn't seen its term.
func outdated(err error) bool {
	var moved *shard.MovedError
	return errors.As(err, &moved) || errors.Is(err, shard.ErrLate) || errors.Is(err, shard.ErrUnraised)
}

// renew reads what was outdated in a refused operation: the placement or the time. If
// Redis has lost a placement that a shard has seen, the operation continues under that
// one; the scanners restore it in Redis.
func (r *Router) renew(ctx context.Context, refusal error) (shard.Placement, error) {
	if errors.Is(refusal, shard.ErrUnraised) {
		return r.raise(ctx)
	}
	r.scripts.ForgetClock()
	p, err := r.refresh(ctx)
	var moved *shard.MovedError
	if err != nil || !errors.As(refusal, &moved) || p.Epoch > moved.Placement.Epoch || p == moved.Placement {
		return p, err
	}
	p, err = r.topic.Seen(ctx, p, moved.Placement)
	if err == nil {
		r.Assume(p)
	}
	return p, err
}

// show fences the shards that aren't known to have seen p, in one round trip. It returns
// the error of each shard that it couldn't fence.
func (r *Router) show(ctx context.Context, p shard.Placement, shards []int) map[int]error {
	unseen := r.unseen(p, shards)
	if len(unseen) == 0 {
		return nil
	}
	failed := map[int]error{}
	for i, fenced := range r.topic.FenceAll(ctx, p, unseen) {
		if at := unseen[i].Shard; fenced.Err != nil {
			failed[at] = fenced.Err
		} else {
			r.saw(at, p, fenced.Cancelled)
		}
	}
	return failed
}

// oldTask is the task of one entry or move at its old shard.
type oldTask struct {
	of     int
	record *shard.Record // nil: it isn't there
	err    error         // of the whole shard
}

// readOld shows the placement to old shards and reads the tasks of batches there, in one
// round trip. If shards refuse the placement, again has their tasks.
func (r *Router) readOld(ctx context.Context, p shard.Placement, batches []*batch, idOf func(i int) string) (
	read []oldTask, again []int, refusal error) {
	if len(batches) == 0 {
		return nil, nil, nil
	}
	for n, fenced := range r.topic.FenceAll(ctx, p, namesOf(batches, idOf)) {
		b := batches[n]
		if outdated(fenced.Err) {
			again, refusal = append(again, b.entries...), fenced.Err
			continue
		}
		records := fenced.Records
		if fenced.Err == nil {
			r.saw(b.key.shard, p, fenced.Cancelled)
		} else {
			records = make([]*shard.Record, len(b.entries))
		}
		for j, i := range b.entries {
			read = append(read, oldTask{i, records[j], fenced.Err})
		}
	}
	return read, again, refusal
}

func (r *Router) unseen(p shard.Placement, shards []int) (unseen []shard.Names) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	asked := map[int]bool{}
	for _, s := range shards {
		if !asked[s] && r.known.fenced[s] != p {
			unseen = append(unseen, shard.Names{Shard: s})
		}
		asked[s] = true
	}
	return unseen
}

// saw notes that a shard has seen a placement, and the time of its last cancel before.
// While p is in force, it deletes no moving task without the new shard.
func (r *Router) saw(shard int, p shard.Placement, cancelled int64) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.fenced[shard] = p
	r.known.cancelled = max(r.known.cancelled, cancelled)
}

// cancelled returns the time of the last cancel that the fenced shards had, in ms.
func (r *Router) cancelled() int64 {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return r.known.cancelled
}

// closeOld removes the copies of moving tasks from their old shards, in one round trip.
// It is the last step of an operation on such tasks. It returns an error or nil for each
// of olds.
//
// A shard that has seen a newer placement has no copies, because the move under this one
// is complete. If a shard answers ErrLate, closeOld sends the same again: the rest of the
// operation is stored already. It carries no term: nobody stores a moving task in its old
// shard, so a late closeOld removes nothing newer.
func (r *Router) closeOld(ctx context.Context, p shard.Placement, olds ...shard.Names) []error {
	errs := make([]error, len(olds))
	todo := upTo(len(olds))
	for range maxRestarts {
		todo = r.closeOldOnce(ctx, p, olds, todo, errs)
		if len(todo) == 0 {
			break
		}
		r.scripts.ForgetClock()
	}
	for _, i := range todo {
		errs[i] = fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", r.topic.Name(),
			olds[i].Shard, maxRestarts, shard.ErrLate)
	}
	return errs
}

// closeOldOnce makes one try for the indexes in todo, and returns the indexes that were
// late.
func (r *Router) closeOldOnce(ctx context.Context, p shard.Placement, olds []shard.Names, todo []int,
	errs []error) (late []int) {
	deadline, err := r.scripts.Deadline(ctx)
	if err != nil {
		for _, i := range todo {
			errs[i] = err
		}
		return nil
	}
	batches := make([]shard.Deletion, len(todo))
	for n, i := range todo {
		batches[n].Names = olds[i]
	}
	for n, err := range r.topic.Delete(ctx, p, deadline, batches) {
		var moved *shard.MovedError
		switch i := todo[n]; {
		case errors.Is(err, shard.ErrLate):
			late = append(late, i)
		case err != nil && !errors.As(err, &moved):
			errs[i] = err
		}
	}
	return late
}

// batch has the entries that one script takes, by their indexes. They lie in one shard and
// share the arguments that a script takes only once.
type batch struct {
	key     batchKey
	entries []int
	bytes   int
}

type batchKey struct {
	shard  int
	op     shard.Op // of puts
	mode   shard.Mode
	moving bool // entries that go from one shard to another in this change
}

// group puts entries with the same key into batches of at most that many entries, and of
// at most scriptBytes unless an entry is larger.
func group(todo []int, most int, keyOf func(i int) batchKey, bytesOf func(i int) int) []*batch {
	open := map[batchKey]*batch{}
	var all []*batch
	for _, i := range todo {
		key, bytes := keyOf(i), bytesOf(i)
		b := open[key]
		if b == nil || len(b.entries) == most || b.bytes+bytes > scriptBytes {
			b = &batch{key: key}
			open[key] = b
			all = append(all, b)
		}
		b.entries = append(b.entries, i)
		b.bytes += bytes
	}
	return all
}

// names returns the tasks of a batch.
func (b *batch) names(idOf func(i int) string) shard.Names {
	n := shard.Names{Shard: b.key.shard, IDs: make([]string, len(b.entries))}
	for j, i := range b.entries {
		n.IDs[j] = idOf(i)
	}
	return n
}

func namesOf(batches []*batch, idOf func(i int) string) []shard.Names {
	names := make([]shard.Names, len(batches))
	for n, b := range batches {
		names[n] = b.names(idOf)
	}
	return names
}

// upTo returns the indexes of n entries.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// without returns the entries of todo that are not in some.
func without(todo, some []int) (left []int) {
	if len(some) == 0 {
		return todo
	}
	in := make(map[int]bool, len(some))
	for _, i := range some {
		in[i] = true
	}
	for _, i := range todo {
		if !in[i] {
			left = append(left, i)
		}
	}
	return left
}
