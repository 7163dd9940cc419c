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

// view is what this scanner knows of a topic's placement and of its shards under it. It
// is safe for concurrent use.
type view struct {
	log     *slog.Logger
	metrics *telemetry.TopicMetrics
	changed *retry.Broadcast // told of each placement that is taken

	mu        sync.Mutex
	placement shard.Placement
	removed   bool                    // the topic was removed from Redis
	clean     map[int]bool            // shards known to be clean under placement
	shown     map[int]shard.Placement // by shard: what it was last shown
}

// known returns the placement, of epoch 0 before one was read, and whether the topic was
// removed.
func (v *view) known() (p shard.Placement, removed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.placement, v.removed
}

// scanned returns how many shards are attended; at least 1.
func (v *view) scanned() int {
	p, _ := v.known()
	return max(p.Scanned(), 1)
}

// learn notes a placement that was read from Redis. One that is older than the one known
// was most likely read before that; the reconciler finds out.
func (v *view) learn(p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Epoch > v.placement.Epoch {
		v.take(p)
	}
}

// relearn notes a placement that was read when known was known already. So an older
// one is what Redis fell back to, as one that was restored from a backup does, and
// with it what its shards have seen.
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
		v.log.WarnContext(context.Background(), "placement is not the one that was known", "known", known.String(), "placement", p.String())
		v.shown = map[int]shard.Placement{}
		v.take(p)
	}
}

// take puts a placement in the place of the one known; v.mu is held.
func (v *view) take(p shard.Placement) {
	v.placement, v.clean, v.removed = p, map[int]bool{}, false
	v.metrics.SetPlacement(p.Shards, p.Epoch, p.Phase == shard.Migrating)
	if p.Phase == shard.Stable {
		v.metrics.SetProgress(0, 0, 0)
		v.metrics.SetStrays(0)
	}
	v.changed.Fire()
}

// learnRemoved notes that Redis has no placement of the topic any more.
func (v *view) learnRemoved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.removed = true
}

// lastShown returns the placement that a shard was last shown.
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

// learnClean notes which shards are clean under a placement, unless another one is known.
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

// unclean returns how many shards are not known to be clean under a placement.
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
	// sweepInterval is how often the fleet looks for tasks in shards that nobody attends.
	// Each scanner does so when it learns a placement, which may be one that Redis fell
	// back to, and then every interval times their number: it takes a command for each
	// shard that a topic may have.
	sweepInterval = 10 * time.Minute
	// sampleInterval is how often the tasks that are still to be moved are estimated.
	sampleInterval = 2 * time.Second
)

// reconciler brings a topic's placement in Redis to the shard count that its document
// desires. Every scanner has one; the compare-and-set on the placement lets one of them
// through. Fields below placed are those of its goroutine.
type reconciler struct {
	topic  *topic
	source config.Source
	shared bool          // the source is the same for all scanners: Consul
	placed chan struct{} // a placement was put in force

	agreed uint64 // the version of the desired count that the placement agreed with
	last   shard.Placement
	swept  time.Time // under last
	sample time.Time
}

// wake has the reconciler read the placement at once: one was put in force.
func (r *reconciler) wake() { kick(r.placed) }

// run reconciles every half second, and when something changed, until ctx ends.
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

// reconcile makes the placement if there is none, begins a change that is desired, and
// ends one whose shards are all clean.
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
	// What keeps it from sweeping is told until it could, and holds up no change.
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

// create makes the placement of a topic that a document asks for. A topic that was
// removed, and whose document is gone, is not brought back.
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

// sweep looks for tasks where no worker comes, and has them brought home. A change
// that is desired can't begin beside that one.
func (r *reconciler) sweep(ctx context.Context, p shard.Placement) error {
	t := r.topic
	strays, err := t.store.Strays(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	t.metrics.SetStrays(strays.Tasks)
	if strays.Tasks == 0 {
		return nil
	}
	gathering, err := t.store.Gather(ctx, p, strays)
	if gathering {
		t.log.WarnContext(ctx, "tasks lie in shards that nobody attends: they are brought home",
			"tasks", strays.Tasks, "within", strays.Within, "shards", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}

// differs reports whether the placement may not have the shard count that the document
// desires. With Consul that is so whenever the two differ. Files may differ from one
// scanner to the next, which would undo each other's counts: there it is so only once a
// file has changed.
func (r *reconciler) differs(p shard.Placement, desired uint64) bool {
	if r.shared {
		return r.topic.settings().Shards != p.Shards
	}
	return desired != r.agreed
}

// beginChange changes the shard count to what the document says now. The document is
// read again, consistently, after the placement, so that an old count can't undo a newer
// one. desired is the version known before that: a count that comes meanwhile is
// reconciled by itself.
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

// followChange notes which shards are clean, and ends the change when all are:
// the scanner that cleaned the last one may have died before it could.
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

// finishChange ends a change whose shards are all clean. Whoever is first succeeds: the
// reconciler, or the mover of the last shard.
func (t *topic) finishChange(ctx context.Context, p shard.Placement) error {
	done, err := t.store.Finish(ctx, p)
	if done {
		t.log.InfoContext(ctx, "shard count changed", "from", p.Previous, "to", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}
