package scanner

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// stewardBeat is how often a scanner looks whether a topic's placement is what
// its document wishes for.
const stewardBeat = 500 * time.Millisecond

// sweepBeat is how often the fleet looks for tasks in shards that nobody attends. Each
// scanner does so when it learns a placement, which may be one that Redis fell back
// to, and then every beat times their number: it takes a command for each shard that
// a topic may have.
const sweepBeat = 10 * time.Minute

// sampleBeat is how often the tasks that are still to be moved are estimated.
const sampleBeat = 2 * time.Second

// steward keeps the placement at the document's wish. Every scanner does it; the
// compare-and-set on the placement lets one of them through.
func (t *topic) steward(ctx context.Context) error {
	silent := false
	var pause retry.Backoff
	for ctx.Err() == nil {
		err := t.tend(ctx)
		if t.denied.note("placement", err); err == nil {
			silent = false
			pause.Reset()
			t.awaitSteward(ctx)
			continue
		}
		if ctx.Err() == nil && !silent {
			silent = true
			t.log.WarnContext(ctx, "placement not tended", "error", redisText(err))
		}
		t.all.Error("placement")
		pause.Wait(ctx)
	}
	return nil
}

func (t *topic) awaitSteward(ctx context.Context) {
	timer := time.NewTimer(stewardBeat)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-t.placed:
	case <-t.changes():
	}
}

// tendNow has the steward look at the placement: somebody put one in force.
func (t *topic) tendNow() {
	select {
	case t.placed <- struct{}{}:
	default:
	}
}

// tend makes the placement if there is none, begins a change that is wished for,
// and ends one whose shards are all clean.
func (t *topic) tend(ctx context.Context) error {
	wishes := t.wishes.Load()
	known, _ := t.known()
	p, err := t.store.Placement(ctx)
	if errors.Is(err, task.ErrUnknownTopic) {
		p, err = t.make(ctx)
	}
	if err != nil || p.Epoch == 0 {
		return err
	}
	t.relearn(known, p)
	if p.Phase == shard.Migrating {
		return t.followChange(ctx, p)
	}
	if t.swept.allow(sweepBeat * time.Duration(max(t.live(), 1))) {
		if err := t.sweep(ctx, p); err != nil {
			return err
		}
	}
	if !t.wished(p, wishes) {
		return nil
	}
	return t.beginChange(ctx, p, wishes)
}

// sweep looks for tasks where no worker comes, and has them brought home. A change
// that is wished for can't begin beside that one.
func (t *topic) sweep(ctx context.Context, p shard.Placement) error {
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

// wished reports whether the placement may not be what the document wishes for. With
// Consul that is so whenever the two differ. Files may differ from one scanner to
// the next, which would undo each other's counts: theirs is a wish only once they
// have changed.
func (t *topic) wished(p shard.Placement, wishes uint64) bool {
	if t.shared {
		return t.settings().Shards != p.Shards
	}
	return wishes != t.heeded
}

// make makes the placement of a topic that a document asks for. A topic that was
// removed, and whose document is gone, is not brought back.
func (t *topic) make(ctx context.Context) (shard.Placement, error) {
	doc, there, err := t.source.Read(ctx, t.name)
	if err != nil {
		if _, removed := t.known(); removed {
			return shard.Placement{}, err
		}
		return t.store.Ensure(ctx, t.settings().Shards) // the last good settings must do
	}
	if !there || doc.Err != nil {
		t.learnRemoved()
		return shard.Placement{}, nil
	}
	return t.store.Ensure(ctx, doc.Topic.Shards)
}

// beginChange changes the shard count to what the document says now: it is read
// again, consistently, after the placement, so that an old wish can't undo a
// newer one. The wishes are those known before that: one that comes meanwhile is
// looked at by itself.
func (t *topic) beginChange(ctx context.Context, p shard.Placement, wishes uint64) error {
	doc, there, err := t.source.Read(ctx, t.name)
	if err != nil {
		return err
	}
	if !there || doc.Err != nil {
		return nil
	}
	if doc.Topic.Shards == p.Shards {
		t.heeded = wishes
		return nil
	}
	began, err := t.store.Begin(ctx, p, doc.Topic.Shards)
	if began {
		t.log.InfoContext(ctx, "shard count changes", "from", p.Shards, "to", doc.Topic.Shards, "epoch", p.Epoch+1)
	}
	return err
}

// followChange notes which shards are clean, and ends the change when all are:
// the scanner that cleaned the last one may have died before it could.
func (t *topic) followChange(ctx context.Context, p shard.Placement) error {
	clean, err := t.store.Clean(ctx, p)
	if err != nil {
		return err
	}
	left := 0
	t.mu.Lock()
	for at, is := range clean {
		t.clean[at] = is
		if !is {
			left++
		}
	}
	t.mu.Unlock()
	if left == 0 {
		return t.finishChange(ctx, p)
	}
	if t.sampled.allow(sampleBeat) {
		return t.sample(ctx, p)
	}
	return nil
}

// sample estimates how far the change has come.
func (t *topic) sample(ctx context.Context, p shard.Placement) error {
	progress, err := t.store.Progress(ctx, p)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	ms, err := t.store.Now(ctx)
	if err != nil {
		return err
	}
	now := time.UnixMilli(ms)
	t.metrics.SetProgress(progress.Misplaced, progress.Rate(now), progress.Left(now))
	return nil
}

func (t *topic) finishChange(ctx context.Context, p shard.Placement) error {
	done, err := t.store.Finish(ctx, p)
	if done {
		t.log.InfoContext(ctx, "shard count changed", "from", p.Previous, "to", p.Shards, "epoch", p.Epoch+1)
	}
	return err
}

func (t *topic) isClean(p shard.Placement, at int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.placement == p && t.clean[at]
}

// moving is how many workers of the fleet may move tasks at a time: one a shard
// that isn't clean, as far as there are workers.
func (t *topic) moving(p shard.Placement) int {
	workers := t.live() * t.wanted()
	t.mu.Lock()
	defer t.mu.Unlock()
	dirty := p.Scanned()
	if t.placement == p {
		for _, clean := range t.clean {
			if clean {
				dirty--
			}
		}
	}
	return min(dirty, workers)
}
