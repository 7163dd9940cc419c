package scanner

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// moveShare is the most that moving takes of one worker's time, or of several
	// workers' time together. They share Redis, which does one thing at a time. The rest
	// keeps Redis free for delivering and for producers. See docs/adr/0009.
	moveShare = 0.25
	// moveScan is about how many tasks a step looks at, and so the most that it moves.
	// The more tasks a script moves, the longer it delays what is due.
	moveScan = 100
	// moveLease is how long an export lasts. Imports that come too late extend it, up to
	// moveLeaseMost. A mover that dies leaves its export for that long. So tasks that are
	// due within twice that time aren't exported, until a shard has seen movePasses
	// passes.
	moveLease     = 5 * time.Second
	moveLeaseMost = time.Minute
	movePasses    = 200
	// moveMargin is how long before the end of an export its tasks are no longer
	// imported. The clocks of two Redis servers differ by less.
	moveMargin = time.Second
	// moveRest is how long a shard rests when its remaining misplaced tasks are leased or
	// about to be delivered, or when another worker moves them.
	moveRest = 100 * time.Millisecond
	// stopMoving is how long a step may go on when the scanner stops.
	stopMoving = 5 * time.Second
	// moveLongest is the longest time that a worker rests between two steps.
	moveLongest = 10 * time.Second
)

// mover moves misplaced tasks of one shard to their new shards, a step at a time. Each
// worker has a mover for every shard that it polls. There is no leader.
type mover struct {
	topic    *topic
	claimant string      // the worker's name, unique in the fleet
	at       int         // the shard's number
	from     shard.Shard // the shard itself
	p        shard.Placement
	state    moverState
	pass     shard.Pass
	rest     time.Time     // no step in the shard before it
	lease    time.Duration // of the last export
}

type moverState int

const (
	moverNew    moverState = iota // has not shown the placement to the shard
	moverIdle                     // has shown it, and isn't the shard's mover
	moverActive                   // is the shard's mover
	moverOff                      // nothing is left to do
)

func newMover(t *topic, claimant string, at int, p shard.Placement) *mover {
	m := &mover{topic: t, claimant: claimant, at: at, from: t.far.Shard(at), p: p}
	if p.Phase == shard.Stable && t.view.lastShown(at) == p {
		m.state = moverOff
	}
	return m
}

// move takes steps in the shards that a worker polls, with rests between them. It returns
// when the tick ends with ctx, or when nothing is left to do. A step that has begun goes
// on until sure ends. The first shard is chosen at random: of many shards a tick has time
// for few, and none should always come last.
func (w *worker) move(ctx, sure context.Context, shards []int, p shard.Placement) {
	var all []*mover
	from := rand.IntN(len(shards))
	for i := range shards {
		if m := newMover(w.topic, w.name, shards[(from+i)%len(shards)], p); m.state != moverOff {
			all = append(all, m)
		}
	}
	defer func() {
		for _, m := range all {
			m.leave(ctx)
		}
	}()
	showAll(ctx, w.topic, all, p)
	for m := nextOf(all); m != nil; m = nextOf(all) {
		retry.Sleep(ctx, max(time.Until(m.rest), time.Until(w.turn)))
		if ctx.Err() != nil {
			return
		}
		if !w.topic.moving.begin(ctx) {
			return
		}
		began := time.Now()
		if m.try(ctx, sure) && m.state != moverIdle {
			w.turn = turnAfter(began, time.Now(), shareOf(w.topic.movers(p)))
		}
		w.topic.moving.end()
	}
}

// oneStep lets only one mover of a scanner take a step at a time. So moving keeps no more
// than the tasks of one export in memory.
type oneStep chan struct{}

// begin waits for the other movers, and returns false if ctx ends first.
func (o oneStep) begin(ctx context.Context) bool {
	select {
	case o <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o oneStep) end() { <-o }

// exportLease is how long the exports of a topic last. Large tasks and a slow network may
// need longer than moveLease, so an export whose import came too late doubles it.
type exportLease struct{ nanos atomic.Int64 }

func (l *exportLease) now() time.Duration { return max(moveLease, time.Duration(l.nanos.Load())) }

// late notes that an export ended before its import.
func (l *exportLease) late(lease time.Duration) {
	l.nanos.Store(int64(min(2*max(moveLease, lease), moveLeaseMost)))
}

// took notes how long an export was needed. It halves the lease if little of it was used.
func (l *exportLease) took(lease, d time.Duration) {
	if d < lease/4 {
		l.nanos.Store(int64(lease / 2))
	}
}

// movers returns how many workers of the fleet may move tasks at the same time. That is
// one per shard that isn't clean, and no more than there are workers.
func (t *topic) movers(p shard.Placement) int { return min(t.view.unclean(p), t.live()*t.workers()) }

// nextOf returns the mover that may take a step first; nil if nothing is left to do.
func nextOf(all []*mover) (first *mover) {
	for _, m := range all {
		if m.state != moverOff && (first == nil || m.rest.Before(first.rest)) {
			first = m
		}
	}
	return first
}

// shareOf returns the share of its time that each of movers workers may spend on moving.
func shareOf(movers int) float64 {
	return moveShare / float64(max(movers, 1))
}

// turnAfter returns when the next step may begin, if moving takes a share of the time.
// With many shards that is in a later tick of the worker, at another shard. After a step
// that stalled the rest is no longer than moveLongest.
func turnAfter(began, ended time.Time, share float64) time.Time {
	rest := time.Duration(float64(ended.Sub(began)) * (1/share - 1))
	return ended.Add(min(rest, moveLongest))
}

// showAll shows the placement to the movers' shards in one round trip, and finds out
// which of them may need moving.
func showAll(ctx context.Context, t *topic, all []*mover, p shard.Placement) {
	at := make([]shard.Names, len(all))
	for i, m := range all {
		at[i].Shard = m.at
	}
	for i, fenced := range t.store.FenceAll(context.WithoutCancel(ctx), p, at) {
		m := all[i]
		if !m.check(ctx, fenced.Err) {
			continue
		}
		t.view.show(m.at, p)
		m.state = moverIdle
		if p.Phase != shard.Migrating || t.view.isClean(p, m.at) {
			m.state = moverOff
		}
	}
}

// try takes a step, which ends with sure, and reports whether it succeeded. If not, the
// mover is off for this tick.
func (m *mover) try(ctx, sure context.Context) bool {
	return m.check(ctx, m.step(sure))
}

// check notes the outcome of a call and reports whether it succeeded. After an error the
// mover is off.
func (m *mover) check(ctx context.Context, err error) bool {
	if err == nil {
		m.topic.health.works(ctx, m.at, "move")
		return true
	}
	m.leave(ctx)
	m.state = moverOff
	m.fail(ctx, err)
	return false
}

// fail notes why moving stopped. It isn't an error if the shard has seen a newer
// placement; that one is put back if Redis lost it.
func (m *mover) fail(ctx context.Context, err error) {
	var moved *shard.MovedError
	if errors.As(err, &moved) {
		err = m.topic.store.Restore(context.WithoutCancel(ctx), moved.Placement)
	}
	switch {
	case err == nil:
	case shard.Definite(err):
		m.topic.health.fails(ctx, m.at, "move", err)
	default:
		m.topic.health.errors("move")
		m.topic.notices.moving.Say(ctx, "shard", m.at, "error", err)
	}
}

// step looks at some tasks of the shard and moves the misplaced ones. The first step
// makes this the shard's mover, unless there is one.
func (m *mover) step(ctx context.Context) error {
	if m.state == moverIdle {
		if err := m.begin(ctx); err != nil || m.state == moverIdle {
			return err
		}
	}
	ids, to, err := m.from.Scan(ctx, m.pass.Cursor, moveScan)
	if err != nil {
		return err
	}
	misplaced := slices.DeleteFunc(ids, func(id string) bool { return m.p.New(id) == m.at })
	dirty, more, err := m.carry(ctx, misplaced)
	if err != nil || more { // the next step looks at the same tasks again
		return err
	}
	pass, err := m.from.ScanPass(ctx, m.p, m.pass, to, dirty)
	if err != nil {
		return err
	}
	ended := pass.Number != m.pass.Number
	m.pass = pass
	if pass.Clean {
		return m.finish(ctx)
	}
	if ended {
		m.rest = time.Now().Add(moveRest)
	}
	return nil
}

// begin makes this the shard's mover and reads how far the last mover came.
func (m *mover) begin(ctx context.Context) error {
	m.state = moverActive // assumed, in case the answer is lost
	mine, err := m.from.TryMove(ctx, m.claimant, m.topic.settings().Tick+m.topic.exports.now())
	if err != nil {
		return err
	}
	if !mine { // the mover is most likely a worker whose tick is about to end
		m.state = moverIdle
		m.rest = time.Now().Add(moveRest)
		return nil
	}
	m.pass, err = m.from.Pass(ctx, m.p)
	return err
}

// carry moves the tasks that may be exported, as many as one export takes. dirty reports
// whether any of the tasks may still be here. more reports whether some of them are left
// for another export.
func (m *mover) carry(ctx context.Context, ids []string) (dirty, more bool, err error) {
	if len(ids) == 0 {
		return false, false, nil
	}
	began := time.Now()
	export, err := m.from.Export(ctx, m.p, m.newExport(ids))
	if err != nil {
		return true, false, err
	}
	gone, err := m.handOver(ctx, export)
	if err == nil {
		m.topic.exports.took(m.lease, time.Since(began))
	}
	stays := func(id string) bool { return !gone[id] }
	return slices.ContainsFunc(ids, stays), export.Left > 0, err
}

// newExport returns a request for an export. Tasks that are due soon stay, to be
// delivered from this shard. A task that is retried again and again is always due soon,
// so after movePasses passes such tasks are exported too.
func (m *mover) newExport(ids []string) shard.Export {
	m.lease = m.topic.exports.now()
	soon := 2 * m.lease
	if m.pass.Count > movePasses {
		soon = 0
	}
	return shard.Export{Claimant: m.claimant + "/move", Request: m.topic.request(), Lease: m.lease, Soon: soon, IDs: ids}
}

// handOver imports an export into the new shards and removes what they have from this
// one. It returns the IDs of the removed tasks, or none if any of them wasn't removed. If
// it is certain that a shard imported nothing, its tasks are given back at once. If it
// isn't, their lease must run out first.
func (m *mover) handOver(ctx context.Context, export shard.Exported) (map[string]bool, error) {
	var imported []shard.Lease
	var back []shard.Release
	var errs []error
	shares := m.shares(export)
	for i, a := range m.topic.far.Import(ctx, m.p, export.Deadline-moveMargin.Milliseconds(), shares...) {
		var moved *shard.MovedError
		late := errors.Is(a.Err, shard.ErrLate)
		if late {
			m.topic.exports.late(m.lease)
		}
		refused := late || errors.As(a.Err, &moved)
		for _, l := range shares[i].Tasks {
			lease := shard.Lease{ID: l.ID, Token: export.Token}
			if a.Err == nil {
				imported = append(imported, lease)
			} else if refused {
				back = append(back, shard.Release{Lease: lease, Exported: true})
			}
		}
		errs = append(errs, a.Err)
	}
	if len(back) > 0 {
		_, err := m.from.Release(ctx, back)
		errs = append(errs, err)
	}
	if len(imported) == 0 {
		return nil, errors.Join(errs...)
	}
	n, err := m.from.Settle(ctx, imported)
	m.topic.metrics.Moved.Add(float64(n))
	gone := map[string]bool{}
	if n == len(imported) { // else it isn't known which ones
		for _, l := range imported {
			gone[l.ID] = true
		}
	}
	return gone, errors.Join(append(errs, err)...)
}

// shares splits an export by the shards that its tasks go to.
func (m *mover) shares(export shard.Exported) []shard.Share {
	var shares []shard.Share
	at := map[int]int{}
	for _, l := range export.Tasks {
		to := m.p.New(l.ID)
		i, ok := at[to]
		if !ok {
			i, at[to] = len(shares), len(shares)
			shares = append(shares, shard.Share{Shard: to})
		}
		shares[i].Tasks = append(shares[i].Tasks, l)
	}
	return shares
}

// finish marks the shard as clean. If it was the last one, finish ends the change.
func (m *mover) finish(ctx context.Context) error {
	left, err := m.topic.store.MarkClean(ctx, m.p, m.at)
	if err != nil {
		return err
	}
	m.leave(ctx)
	m.state = moverOff
	if left != 0 {
		return nil
	}
	return m.topic.finishChange(ctx, m.p)
}

// leave lets another worker become the shard's mover.
func (m *mover) leave(ctx context.Context) {
	if m.state != moverActive {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopMoving)
	defer cancel()
	if err := m.from.StopMove(brief, m.claimant); err != nil {
		m.topic.log.DebugContext(ctx, "shard's mover not released", "shard", m.at, "error", err)
	}
}
