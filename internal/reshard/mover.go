package reshard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// mover moves misplaced tasks of one shard to their new shards, a step at a time. Each
// worker has a mover for every shard that it polls. There is no leader.
type mover struct {
	of       *Resharder
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

func (r *Resharder) newMover(claimant string, at int, p shard.Placement) *mover {
	m := &mover{of: r, claimant: claimant, at: at, from: r.cfg.Moving.Shard(at), p: p}
	if r.Rests([]int{at}, p) {
		m.state = moverOff
	}
	return m
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
		m.of.cfg.Report.Works(ctx, m.at, "move")
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
		err = m.of.cfg.Topic.Restore(context.WithoutCancel(ctx), moved.Placement)
	}
	switch {
	case err == nil:
	case shard.Definite(err):
		m.of.cfg.Report.Fails(ctx, m.at, "move", err)
	default:
		m.of.cfg.Report.Tried("move", err)
		m.of.stopped.Log(ctx, "shard", m.at, "error", err)
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
	mine, err := m.from.TryMove(ctx, m.claimant, m.of.cfg.InForce().Tick+m.of.exports.now())
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
		m.of.exports.took(m.lease, time.Since(began))
	}
	stays := func(id string) bool { return !gone[id] }
	return slices.ContainsFunc(ids, stays), export.Left > 0, err
}

// newExport returns a request for an export. Tasks that are due soon stay, to be
// delivered from this shard. A task that is retried again and again is always due soon,
// so after movePasses passes such tasks are exported too.
func (m *mover) newExport(ids []string) shard.Export {
	m.lease = m.of.exports.now()
	soon := 2 * m.lease
	if m.pass.Count > movePasses {
		soon = 0
	}
	return shard.Export{Claimant: m.claimant + "/move", Request: m.of.cfg.Request(), Lease: m.lease, Soon: soon, IDs: ids}
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
	for i, a := range m.of.cfg.Moving.Import(ctx, m.p, export.Deadline-moveMargin.Milliseconds(), shares...) {
		var moved *shard.MovedError
		late := errors.Is(a.Err, shard.ErrLate)
		if late {
			m.of.exports.late(m.lease)
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
	n, err := m.from.RemoveExported(ctx, imported)
	m.of.cfg.Metrics.Moved.Add(float64(n))
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

// finish marks the shard as clean. If it was the last one, it wakes Run, which ends the
// change.
func (m *mover) finish(ctx context.Context) error {
	left, err := m.of.cfg.Topic.MarkClean(ctx, m.p, m.at)
	if err != nil {
		return err
	}
	m.leave(ctx)
	m.state = moverOff
	if left == 0 {
		m.of.cfg.Changed.Fire()
	}
	return nil
}

// leave lets another worker become the shard's mover.
func (m *mover) leave(ctx context.Context) {
	if m.state != moverActive {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopMoving)
	defer cancel()
	if err := m.from.StopMove(brief, m.claimant); err != nil {
		m.of.cfg.Log.DebugContext(ctx, "shard's mover not released", "shard", m.at, "error", err)
	}
}

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
