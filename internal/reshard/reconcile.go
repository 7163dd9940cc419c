package reshard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
)

const (
	// Interval is how often a scanner compares a topic's placement with its document.
	Interval = 500 * time.Millisecond
	// sweepInterval is how often the fleet looks for orphaned tasks, which lie in shards
	// that no worker polls. Each scanner looks when it learns a placement, because Redis
	// may have fallen back to that one. After that it looks once in sweepInterval times
	// the number of scanners. In a Redis Cluster that takes a command for each shard that a
	// topic may have.
	sweepInterval = 10 * time.Minute
	// sampleInterval is how often the number of tasks that are still to be moved is
	// estimated.
	sampleInterval = 2 * time.Second
)

// Chore is to follow Changed: it reconciles at once, after every change, and at the topic's pace.
func (r *Resharder) Chore() *wake.Chore {
	return &wake.Chore{
		Wanted: func() bool { return !r.started || r.cfg.Changed.Fires() != r.seen },
		Do:     r.reconcileOnce,
	}
}

// reconcileOnce reconciles, and tries again until that succeeds or ctx ends.
func (r *Resharder) reconcileOnce(ctx context.Context) {
	if r.next != nil {
		r.next.Stop()
	}
	var pause retry.Backoff
	for logged := false; ctx.Err() == nil; pause.Wait(ctx) {
		r.seen = r.cfg.Changed.Fires()
		var err error
		if r.started {
			err = r.reconcile(ctx)
		} else if err = r.start(ctx); err == nil {
			r.started = true
		}
		if ctx.Err() != nil {
			return
		}
		if r.cfg.Report.Tried("placement", err); err == nil {
			r.next = time.AfterFunc(r.cfg.Pace(), r.cfg.Changed.Fire)
			return
		}
		if !logged {
			logged = true
			r.cfg.Log.WarnContext(ctx, "placement not reconciled", "error", err.Error()+r.cfg.Advice(err.Error()))
		}
	}
}

// start is the first reconcile.
func (r *Resharder) start(ctx context.Context) error {
	if err := r.cfg.Starts.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.cfg.Starts.Release(1)
	return r.reconcile(ctx)
}

// GiveTurn makes r look for orphaned tasks, if it owes that; it reports whether it does.
func (r *Resharder) GiveTurn() bool {
	r.sweeps.Lock()
	defer r.sweeps.Unlock()
	if r.turn || !r.owes() {
		return false
	}
	r.turn = true
	r.cfg.Changed.Fire()
	return true
}

// owes reports whether a look for orphaned tasks is due; r.sweeps is held.
func (r *Resharder) owes() bool {
	every := sweepInterval * time.Duration(max(r.cfg.Live(), 1))
	return r.last.Epoch > 0 && r.last.Phase == shard.Stable && time.Since(r.swept) >= every
}

// isItsTurn notes that p is in force. It reports whether r is to look for orphaned tasks now.
func (r *Resharder) isItsTurn(p shard.Placement) bool {
	r.sweeps.Lock()
	defer r.sweeps.Unlock()
	if p != r.last {
		r.last, r.swept = p, time.Time{}
	}
	return r.turn && r.owes()
}

// hasSwept notes that r has looked for orphaned tasks.
func (r *Resharder) hasSwept() {
	r.sweeps.Lock()
	defer r.sweeps.Unlock()
	r.swept, r.turn = time.Now(), false
}

// reconcile creates the placement if there is none, begins a desired change, and ends a
// change whose shards are all clean.
func (r *Resharder) reconcile(ctx context.Context) error {
	doc := r.cfg.InForce()
	known, _ := r.Known()
	p, err := r.cfg.Topic.Placement(ctx)
	if errors.Is(err, task.ErrUnknownTopic) {
		p, err = r.create(ctx, doc)
	}
	if err != nil || p.Epoch == 0 {
		return err
	}
	r.view.relearn(known, p)
	turn := r.isItsTurn(p)
	if p.Phase == shard.Migrating {
		return r.followChange(ctx, p)
	}
	// A failed sweep is reported until it succeeds, and doesn't block a change of M.
	var unswept error
	if turn {
		if unswept = r.sweep(ctx, p); unswept == nil {
			r.hasSwept()
		}
	}
	if r.differs(p, doc) {
		if err := r.beginChange(ctx, p, doc); err != nil {
			return err
		}
	}
	return unswept
}

// create creates the placement of a topic that has a document. It doesn't bring back a
// topic that was removed and whose document is gone.
func (r *Resharder) create(ctx context.Context, inForce Document) (shard.Placement, error) {
	shards, err := r.cfg.Desired(ctx)
	if err != nil {
		if _, removed := r.Known(); removed {
			return shard.Placement{}, err
		}
		shards = inForce.Shards // the last good settings must do
	}
	if shards == 0 {
		r.view.learnRemoved()
		return shard.Placement{}, nil
	}
	return r.cfg.Topic.Ensure(ctx, shards)
}

// sweep looks for orphaned tasks and begins the change that recovers them. A desired
// change can't begin at the same time.
func (r *Resharder) sweep(ctx context.Context, p shard.Placement) error {
	orphans, err := r.cfg.Topic.Orphans(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	r.cfg.Metrics.Orphans.Set(float64(orphans.Tasks))
	if orphans.Tasks == 0 {
		return nil
	}
	gathering, err := r.cfg.Topic.Gather(ctx, p, orphans)
	if gathering {
		r.cfg.Log.WarnContext(ctx, "orphaned tasks lie in shards that no worker polls: recovering them",
			"tasks", orphans.Tasks, "within", orphans.Within, "shards", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}

// differs reports whether the shard count in force should replace the placement's. With
// Consul it always should. Files may differ between scanners, which would then undo each
// other's counts. So with files only a count that is new to this scanner should, until the
// placement agrees with it.
func (r *Resharder) differs(p shard.Placement, doc Document) bool {
	if doc.Shards == p.Shards {
		r.agreed = doc.Version
		return false
	}
	return r.cfg.Shared || doc.Version != r.agreed
}

// beginChange changes the shard count to what the source says now. This scanner may have
// missed that, and its own count may be older than the placement. So it asks after it read
// the placement, and no old count undoes a newer one. A count that comes meanwhile is
// reconciled later.
func (r *Resharder) beginChange(ctx context.Context, p shard.Placement, doc Document) error {
	shards, err := r.cfg.Desired(ctx)
	if err != nil || shards == 0 {
		return err
	}
	if shards == p.Shards {
		r.agreed = doc.Version
		return nil
	}
	began, err := r.cfg.Topic.Begin(ctx, p, shards)
	if began {
		r.cfg.Log.InfoContext(ctx, "shard count changes", "from", p.Shards, "to", shards, "epoch", p.Epoch+1)
	}
	return err
}

// followChange notes which shards are clean, and ends the change when all are. Any scanner
// may end it: the one that cleaned the last shard may have died.
func (r *Resharder) followChange(ctx context.Context, p shard.Placement) error {
	clean, err := r.cfg.Topic.Clean(ctx, p)
	if err != nil {
		return err
	}
	r.view.learnClean(p, clean)
	if !slices.Contains(clean, false) {
		done, err := r.cfg.Topic.Finish(ctx, p)
		if done {
			r.cfg.Log.InfoContext(ctx, "shard count changed", "from", p.Previous, "to", p.Shards, "epoch", p.Epoch+1)
		}
		return err
	}
	if time.Since(r.sample) < sampleInterval {
		return nil
	}
	r.sample = time.Now()
	return r.measureProgress(ctx, p)
}

// measureProgress estimates how far the change has come.
func (r *Resharder) measureProgress(ctx context.Context, p shard.Placement) error {
	progress, err := r.cfg.Topic.Progress(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	ms, err := r.cfg.Topic.Now(ctx)
	if err != nil {
		return err
	}
	now := time.UnixMilli(ms)
	r.cfg.Metrics.progress(progress.Misplaced, progress.Rate(now), progress.Left(now))
	return nil
}
