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
	// workers' together: they share Redis, which does one thing at a time. The rest
	// keeps it free for delivering and for producers.
	moveShare = 0.25
	// moveScan is about how many tasks a step looks at, and so the most it moves. A
	// script that moves them holds up what is due for a time that grows with it.
	moveScan = 100
	// moveLease is how long an export lasts, and moveLeaseMost how long at most where
	// imports came too late. A mover that dies leaves its export for that long; so
	// tasks that are due within twice that time aren't exported.
	moveLease     = 5 * time.Second
	moveLeaseMost = time.Minute
	movePasses    = 200
	// moveMargin is the time before the end of an export from which on it is not
	// imported any more: more than two Redis servers' clocks differ by.
	moveMargin = time.Second
	// moveRest is how long a shard rests when all misplaced tasks that are left
	// are leased, or about to be delivered, or when somebody else moves them.
	moveRest = 100 * time.Millisecond
	// moveLongest is how long a worker rests at most between two steps.
	moveLongest = 10 * time.Second
)

// mover carries misplaced tasks of one shard to their new shards, a step at a time. Each
// worker has one for every shard that it attends, beside its claims; there is no leader.
type mover struct {
	topic    *topic
	claimant string      // the worker's name, unique in the fleet
	at       int         // the shard's number
	from     shard.Shard // its tasks
	p        shard.Placement
	state    moverState
	pass     shard.Pass
	rest     time.Time     // the shard's: no step before it
	lease    time.Duration // of the last export
}

type moverState int

const (
	moverNew    moverState = iota // has not shown the shard the placement
	moverIdle                     // has, and is not the shard's mover yet
	moverActive                   // is
	moverOff                      // nothing is left to do
)

func newMover(t *topic, claimant string, at int, p shard.Placement) *mover {
	m := &mover{topic: t, claimant: claimant, at: at, from: t.store.Shard(at), p: p}
	if p.Phase == shard.Stable && t.view.lastShown(at) == p {
		m.state = moverOff
	}
	return m
}

// move takes steps at the shards that a worker attends, and rests in between, until
// the tick ends or nothing is left. It begins with any one of them: where there are
// many, a tick has time for few, and none shall always come last.
func (w *worker) move(ctx context.Context, shards []int, p shard.Placement) {
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
		if m.try(ctx) && m.state != moverIdle {
			w.turn = turnAfter(began, time.Now(), shareOf(w.topic.movers(p)))
		}
		w.topic.moving.end()
	}
}

// oneStep lets one mover of a scanner take a step at a time: the tasks of one export are
// all that moving keeps in memory.
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

// exportLease is how long the exports of a topic last. Large tasks and a slow network
// may need longer than moveLease: an export whose import came too late doubles it.
type exportLease struct{ nanos atomic.Int64 }

func (l *exportLease) now() time.Duration { return max(moveLease, time.Duration(l.nanos.Load())) }

// late notes that an export was over before its import.
func (l *exportLease) late(lease time.Duration) {
	l.nanos.Store(int64(min(2*max(moveLease, lease), moveLeaseMost)))
}

// took notes how long an export was needed: one that used little of its lease halves it.
func (l *exportLease) took(lease, d time.Duration) {
	if d < lease/4 {
		l.nanos.Store(int64(lease / 2))
	}
}

// movers returns how many workers of the fleet may move tasks at a time: one a shard
// that isn't clean, as far as there are workers.
func (t *topic) movers(p shard.Placement) int { return min(t.view.unclean(p), t.live()*t.workers()) }

// nextOf is the mover that may take a step first; nil: nothing is left to do.
func nextOf(all []*mover) (first *mover) {
	for _, m := range all {
		if m.state != moverOff && (first == nil || m.rest.Before(first.rest)) {
			first = m
		}
	}
	return first
}

// shareOf is what moving may take of the time of each of so many workers.
func shareOf(movers int) float64 {
	return moveShare / float64(max(movers, 1))
}

// turnAfter is when the next step may begin, if moving takes a share of the time.
// With many shards that is in one of the worker's next ticks, at another shard. A
// step that stalled is followed by no more than the longest rest.
func turnAfter(began, ended time.Time, share float64) time.Time {
	rest := time.Duration(float64(ended.Sub(began)) * (1/share - 1))
	return ended.Add(min(rest, moveLongest))
}

// showAll shows the movers' shards the placement, in one round trip, and finds out which
// may need moving.
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

// try takes a step, which goes on if the tick ends meanwhile, and reports whether that
// went well. If not, the mover is off for this tick.
func (m *mover) try(ctx context.Context) bool {
	return m.check(ctx, m.step(context.WithoutCancel(ctx)))
}

// check notes how a call went, and reports whether it went well. After an error the
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

// fail notes why moving stopped, unless it was for a newer placement, which is put back
// if Redis lost it.
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

// step looks at some tasks of the shard and moves those that are misplaced. The
// first step makes this the shard's mover, unless there is one.
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

// begin becomes the shard's mover and finds out how far the last one came.
func (m *mover) begin(ctx context.Context) error {
	m.state = moverActive // perhaps, if the answer is lost
	mine, err := m.from.TryMove(ctx, m.claimant, m.topic.settings().Tick+m.topic.exports.now())
	if err != nil {
		return err
	}
	if !mine { // most likely somebody whose tick is about to end
		m.state = moverIdle
		m.rest = time.Now().Add(moveRest)
		return nil
	}
	m.pass, err = m.from.Pass(ctx, m.p)
	return err
}

// carry moves those of the tasks that may be exported, as many as one export takes. It
// reports whether any of them may still be here, and whether more of them are to be
// exported.
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

// newExport asks for an export. Tasks that are due soon are left to be delivered where
// they lie. A task that is tried again and again is always due soon; after many passes
// such ones are moved too.
func (m *mover) newExport(ids []string) shard.Export {
	m.lease = m.topic.exports.now()
	soon := 2 * m.lease
	if m.pass.Count > movePasses {
		soon = 0
	}
	return shard.Export{Claimant: m.claimant + "/move", Request: m.topic.request(), Lease: m.lease, Soon: soon, IDs: ids}
}

// handOver has the new shards import an export, removes here what they have, and returns
// the IDs of what is gone; none, if any of it was not removed. Where it is certain that
// nothing was imported the tasks are given back at once; where it is not, their lease
// must run out first.
func (m *mover) handOver(ctx context.Context, export shard.Exported) (map[string]bool, error) {
	var imported []shard.Lease
	var back []shard.Release
	var errs []error
	shares := m.shares(export)
	for i, a := range m.topic.store.Import(ctx, m.p, export.Deadline-moveMargin.Milliseconds(), shares...) {
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
	m.topic.metrics.Moved(n)
	gone := map[string]bool{}
	if n == len(imported) { // else it is not known which ones
		for _, l := range imported {
			gone[l.ID] = true
		}
	}
	return gone, errors.Join(append(errs, err)...)
}

// shares are the parts of an export by the shards they go to.
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

// finish notes that the shard is clean, and ends the change if it was the last.
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

// leave lets another worker move on with the shard.
func (m *mover) leave(ctx context.Context) {
	if m.state != moverActive {
		return
	}
	if err := m.from.StopMove(context.WithoutCancel(ctx), m.claimant); err != nil {
		m.topic.log.DebugContext(ctx, "shard's mover not free yet", "shard", m.at, "error", err)
	}
}
