package admin

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// Count returns how many tasks a change of all would change: the selected tasks, at most
// Limit. It leaves out shards that can't be read. For a topic that was never served, or
// was removed, the error is task.ErrUnknownTopic.
func (p Parked) Count(ctx context.Context) (n int64, err error) {
	n, err = p.countAll(ctx)
	if p.Limit > 0 {
		n = min(n, int64(p.Limit))
	}
	return n, err
}

func (p Parked) countAll(ctx context.Context) (n int64, err error) {
	if p.Filter != (ParkedFilter{}) {
		err = p.Each(ctx, func(shard.Record) bool { n++; return true })
		if shard.Unreadable(err) != nil {
			err = nil // the change itself reports these
		}
		return n, err
	}
	placement, err := p.Topic.Placement(ctx)
	if err != nil {
		return 0, err
	}
	n, err = p.sum(ctx, placement)
	if shard.Unreadable(err) != nil {
		err = nil // the change itself reports these
	}
	return n, err
}

// pass is one pass over the parked tasks.
type pass struct {
	parked  Parked
	change  change
	began   time.Time
	of      int64 // about how many tasks there are to visit
	visited int64
	changed int
	left    *LeftError
}

// changeAll makes one pass over the parked tasks. It doesn't meet a task again that is
// parked again behind it, for example one that still has no queue.
func (p Parked) changeAll(ctx context.Context, placement shard.Placement, change change) (int, error) {
	all := &pass{parked: p, change: change, began: time.Now(), left: &LeftError{Topic: p.Topic.Name()}}
	if p.Progress != nil {
		all.of, _ = p.sum(ctx, placement) // the walk meets the same errors
	}
	err := p.walk(ctx, placement, func(at int, page []shard.Record) (more bool, err error) {
		return all.visit(ctx, at, page)
	})
	if errors.As(err, &all.left.Shards) || err == nil && all.left.Tasks > 0 {
		err = all.left
	}
	return all.changed, err
}

// visit changes the selected tasks of a page and reports whether to go on.
func (p *pass) visit(ctx context.Context, at int, page []shard.Record) (more bool, err error) {
	size := int64(len(page))
	meant := p.parked.Filter.matching(page)
	ids := make([]string, len(meant))
	for i, r := range meant {
		ids[i] = r.ID
	}
	if p.change.reads {
		ids = p.left.readable(meant)
	}
	p.visited += size - int64(len(ids))
	for len(ids) > 0 && !p.full() {
		if err := p.wait(ctx); err != nil {
			return false, err
		}
		n := min(len(ids), p.step())
		gone, err := p.change.do(p.parked.Topic.Shard(at), ctx, ids[:n]...)
		p.changed += gone
		p.visited += int64(n)
		p.reportProgress()
		if err != nil {
			return false, err
		}
		ids = ids[n:]
	}
	p.reportProgress()
	return !p.full(), nil
}

// full reports whether the limit is reached.
func (p *pass) full() bool { return p.parked.Limit > 0 && p.changed >= p.parked.Limit }

// steps is how many calls per second share a rate.
const steps = 10

// step returns how many tasks the next call may change.
func (p *pass) step() int {
	n := parkedPage
	if p.parked.Rate > 0 {
		n = min(n, max(p.parked.Rate/steps, 1))
	}
	if p.parked.Limit > 0 {
		n = min(n, p.parked.Limit-p.changed)
	}
	return n
}

// wait waits until the rate allows more.
func (p *pass) wait(ctx context.Context) error {
	if p.parked.Rate > 0 {
		earned := time.Duration(float64(p.changed) / float64(p.parked.Rate) * float64(time.Second))
		retry.Sleep(ctx, time.Until(p.began.Add(earned)))
	}
	return ctx.Err()
}

// reportProgress calls Progress.
func (p *pass) reportProgress() {
	switch {
	case p.parked.Progress == nil:
	case p.parked.Limit > 0:
		p.parked.Progress(int64(p.changed), max(min(p.of, int64(p.parked.Limit)), int64(p.changed)))
	default:
		p.parked.Progress(p.visited, max(p.of, p.visited))
	}
}

// sum adds up the parked tasks of all shards that can be read.
func (p Parked) sum(ctx context.Context, placement shard.Placement) (n int64, err error) {
	stats, err := p.Topic.Stats(ctx, placement.Scanned())
	for _, s := range stats {
		n += s.Parked
	}
	return n, err
}
