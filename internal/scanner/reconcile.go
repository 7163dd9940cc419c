package scanner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/task"
)

// view holds what this scanner knows about a topic's placement and its shards. It is safe
// for concurrent use.
type view struct {
	log     *slog.Logger
	metrics *telemetry.TopicMetrics
	changed *retry.Broadcast // fires at each placement that is taken

	mu        sync.Mutex
	placement shard.Placement
	removed   bool                    // the topic was removed from Redis
	clean     map[int]bool            // shards known to be clean under placement
	shown     map[int]shard.Placement // by shard: the placement that it was last shown
}

// known returns the placement and whether the topic was removed. The epoch is 0 before a
// placement was read.
func (v *view) known() (p shard.Placement, removed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.placement, v.removed
}

// scanned returns how many shards are polled; at least 1.
func (v *view) scanned() int {
	p, _ := v.known()
	return max(p.Scanned(), 1)
}

// learn notes a placement that was read from Redis. It ignores a placement that isn't
// newer than the known one: most likely it was read before that. The reconciler finds
// out.
func (v *view) learn(p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Epoch > v.placement.Epoch {
		v.take(p)
	}
}

// relearn notes a placement p that was read after known was. So if p is older, Redis fell
// back to it, for example from a backup. Then the shards may have fallen back too, and
// forgotten what they were shown.
func (v *view) relearn(known, p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case p.Epoch > v.placement.Epoch:
		v.take(p)
	case v.placement != known:
	case p == known:
		v.removed = false
	default:
		v.log.WarnContext(context.Background(), "placement in redis differs from the known one",
			"known", known.String(), "placement", p.String())
		v.shown = map[int]shard.Placement{}
		v.take(p)
	}
}

// take replaces the known placement; v.mu is held.
func (v *view) take(p shard.Placement) {
	v.placement, v.clean, v.removed = p, map[int]bool{}, false
	v.metrics.SetPlacement(p.Shards, p.Epoch, p.Phase == shard.Migrating)
	if p.Phase == shard.Stable {
		v.metrics.SetProgress(0, 0, 0)
		v.metrics.Orphans.Set(0)
	}
	v.changed.Fire()
}

// learnRemoved notes that Redis has no placement of the topic any more.
func (v *view) learnRemoved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.removed = true
}

// lastShown returns the placement that was last shown to a shard.
func (v *view) lastShown(at int) shard.Placement {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shown[at]
}

func (v *view) show(at int, p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shown[at] = p
}

// learnClean notes which shards are clean under p, unless another placement is known.
func (v *view) learnClean(p shard.Placement, clean []bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placement != p {
		return
	}
	for at, is := range clean {
		v.clean[at] = is
	}
}

func (v *view) isClean(p shard.Placement, at int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.placement == p && v.clean[at]
}

// unclean returns how many shards are not known to be clean under p.
func (v *view) unclean(p shard.Placement) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	unclean := p.Scanned()
	if v.placement == p {
		for _, clean := range v.clean {
			if clean {
				unclean--
			}
		}
	}
	return unclean
}

const (
	// reconcileInterval is how often a scanner compares a topic's placement with its
	// document.
	reconcileInterval = 500 * time.Millisecond
	// sweepInterval is how often the fleet looks for orphaned tasks, which lie in shards
	// that no worker polls. Each scanner looks when it learns a placement, because Redis
	// may have fallen back to that one. After that it looks once in sweepInterval times
	// the number of scanners: it takes a command for each shard that a topic may have.
	sweepInterval = 10 * time.Minute
	// sampleInterval is how often the number of tasks that are still to be moved is
	// estimated.
	sampleInterval = 2 * time.Second
)

// reconciler changes a topic's placement in Redis to the shard count that its document
// desires. Every scanner has one; compare-and-set on the placement lets only one of them
// succeed. Only its own goroutine uses the fields below placed.
type reconciler struct {
	topic  *topic
	source config.Source
	shared bool         // all scanners have the same source: Consul
	placed retry.Signal // a placement was put in force

	agreed uint64 // the version of the desired count with which the placement last agreed
	last   shard.Placement
	swept  time.Time // when it last swept under last
	sample time.Time
}

// wake makes the reconciler read the placement at once, because one was put in force.
func (r *reconciler) wake() { r.placed.Send() }

// run reconciles every half second and after every change, until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	t := r.topic
	logged := false
	var pause retry.Backoff
	for ctx.Err() == nil {
		changed := t.changed.Next()
		err := r.reconcile(ctx)
		if t.health.refusals.noteDenied("placement", err); err == nil {
			logged = false
			pause.Reset()
			select {
			case <-ctx.Done():
			case <-time.After(reconcileInterval):
			case <-r.placed:
			case <-changed:
			}
			continue
		}
		if ctx.Err() == nil && !logged {
			logged = true
			t.log.WarnContext(ctx, "placement not reconciled", "error", redisText(err))
		}
		t.health.errors("placement")
		pause.Wait(ctx)
	}
}

// reconcile creates the placement if there is none, begins a desired change, and ends a
// change whose shards are all clean.
func (r *reconciler) reconcile(ctx context.Context) error {
	t := r.topic
	desired := t.desired.Load()
	known, _ := t.view.known()
	p, err := t.store.Placement(ctx)
	if errors.Is(err, task.ErrUnknownTopic) {
		p, err = r.create(ctx)
	}
	if err != nil || p.Epoch == 0 {
		return err
	}
	t.view.relearn(known, p)
	if p != r.last {
		r.last, r.swept = p, time.Time{}
	}
	if p.Phase == shard.Migrating {
		return r.followChange(ctx, p)
	}
	// A failed sweep is reported until it succeeds, and doesn't block a change of M.
	var unswept error
	if time.Since(r.swept) >= sweepInterval*time.Duration(max(t.live(), 1)) {
		if unswept = r.sweep(ctx, p); unswept == nil {
			r.swept = time.Now()
		}
	}
	if r.differs(p, desired) {
		if err := r.beginChange(ctx, p, desired); err != nil {
			return err
		}
	}
	return unswept
}

// create creates the placement of a topic that has a document. It doesn't bring back a
// topic that was removed and whose document is gone.
func (r *reconciler) create(ctx context.Context) (shard.Placement, error) {
	t := r.topic
	doc, there, err := r.source.Read(ctx, t.name)
	if err != nil {
		if _, removed := t.view.known(); removed {
			return shard.Placement{}, err
		}
		return t.store.Ensure(ctx, t.settings().Shards) // the last good settings must do
	}
	if !there || doc.Err != nil {
		t.view.learnRemoved()
		return shard.Placement{}, nil
	}
	return t.store.Ensure(ctx, doc.Topic.Shards)
}

// sweep looks for orphaned tasks and begins the change that recovers them. A desired
// change can't begin at the same time.
func (r *reconciler) sweep(ctx context.Context, p shard.Placement) error {
	t := r.topic
	orphans, err := t.store.Orphans(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	t.metrics.Orphans.Set(float64(orphans.Tasks))
	if orphans.Tasks == 0 {
		return nil
	}
	gathering, err := t.store.Gather(ctx, p, orphans)
	if gathering {
		t.log.WarnContext(ctx, "orphaned tasks lie in shards that no worker polls: recovering them",
			"tasks", orphans.Tasks, "within", orphans.Within, "shards", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}

// differs reports whether the placement may lack the shard count that the document
// desires. With Consul it compares the two counts. Files may differ between scanners,
// which would then undo each other's counts. So with files it is true only for a count
// that is new to this scanner, until the placement agrees with it.
func (r *reconciler) differs(p shard.Placement, desired uint64) bool {
	if r.shared {
		return r.topic.settings().Shards != p.Shards
	}
	return desired != r.agreed
}

// beginChange changes the shard count to what the document says now. It reads the
// document again, consistently and after the placement, so that an old count can't undo a
// newer one. desired is the version known before that; a count that comes meanwhile is
// reconciled later.
func (r *reconciler) beginChange(ctx context.Context, p shard.Placement, desired uint64) error {
	doc, there, err := r.source.Read(ctx, r.topic.name)
	if err != nil {
		return err
	}
	if !there || doc.Err != nil {
		return nil
	}
	if doc.Topic.Shards == p.Shards {
		r.agreed = desired
		return nil
	}
	began, err := r.topic.store.Begin(ctx, p, doc.Topic.Shards)
	if began {
		r.topic.log.InfoContext(ctx, "shard count changes", "from", p.Shards, "to", doc.Topic.Shards, "epoch", p.Epoch+1)
	}
	return err
}

// followChange notes which shards are clean, and ends the change when all are. The
// scanner that cleaned the last shard may have died before it could do so.
func (r *reconciler) followChange(ctx context.Context, p shard.Placement) error {
	clean, err := r.topic.store.Clean(ctx, p)
	if err != nil {
		return err
	}
	r.topic.view.learnClean(p, clean)
	if !slices.Contains(clean, false) {
		return r.topic.finishChange(ctx, p)
	}
	if time.Since(r.sample) < sampleInterval {
		return nil
	}
	r.sample = time.Now()
	return r.measureProgress(ctx, p)
}

// measureProgress estimates how far the change has come.
func (r *reconciler) measureProgress(ctx context.Context, p shard.Placement) error {
	progress, err := r.topic.store.Progress(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	ms, err := r.topic.store.Now(ctx)
	if err != nil {
		return err
	}
	now := time.UnixMilli(ms)
	r.topic.metrics.SetProgress(progress.Misplaced, progress.Rate(now), progress.Left(now))
	return nil
}

// finishChange ends a change whose shards are all clean. The reconciler and the mover of
// the last shard both try; the first to try succeeds.
func (t *topic) finishChange(ctx context.Context, p shard.Placement) error {
	done, err := t.store.Finish(ctx, p)
	if done {
		t.log.InfoContext(ctx, "shard count changed", "from", p.Previous, "to", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}
