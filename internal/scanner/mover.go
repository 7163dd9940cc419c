package scanner

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// moveShare is the part of a worker's time that moving may take while tasks
	// are due.
	moveShare = 0.25
	// moveScan is about how many tasks a step looks at, and so the most it moves.
	moveScan = 200
	// moveLease is how long a loan lasts. A mover that dies leaves its loan for
	// that long; so tasks that are due within moveSoon aren't lent.
	moveLease  = 5 * time.Second
	moveSoon   = 2 * moveLease
	movePasses = 200
	// moveMargin is the time before the end of a loan from which on it is not
	// adopted any more: more than two Redis servers' clocks differ by.
	moveMargin = time.Second
	// moveRest is how long a shard rests when all misplaced tasks that are left
	// are leased, or about to be delivered, or when somebody else moves them.
	moveRest = 100 * time.Millisecond
)

// mover carries misplaced tasks of the shard a worker attends to their new
// shards, a step at a time. It is done by whoever attends; there is no leader.
type mover struct {
	*worker
	shard int
	p     shard.Placement
	state moverState
	pass  shard.Pass
	began time.Time
	spent time.Duration
	rest  time.Time // no step before it
}

type moverState int

const (
	moverNew    moverState = iota // has not become the shard's mover yet
	moverActive                   // is
	moverOff                      // nothing is left to do
)

func (w *worker) mover(at int, p shard.Placement) *mover {
	m := &mover{worker: w, shard: at, p: p, began: time.Now()}
	if p.Phase == shard.Stable && w.touched(at) >= p.Epoch {
		m.state = moverOff
	}
	return m
}

// step moves one batch if it is moving's turn, and answers whether it did: then
// the worker looks for due tasks before it waits or moves on. Delivering goes
// first: while tasks are due, moving takes its share of the time and no more.
func (m *mover) step(ctx context.Context, next moment) bool {
	now := time.Now()
	busy := !next.local.IsZero() && !next.local.After(now)
	turn := !busy || m.spent < time.Duration(float64(now.Sub(m.began))*moveShare)
	if m.state == moverOff || !turn || now.Before(m.rest) || ctx.Err() != nil {
		return false
	}
	err := m.move(context.WithoutCancel(ctx))
	m.spent += time.Since(now)
	if err != nil {
		m.state = moverOff
		m.moved(ctx, err)
	}
	return m.state == moverActive && !time.Now().Before(m.rest)
}

// moved says why moving stopped, unless it was for a newer placement.
func (m *mover) moved(ctx context.Context, err error) {
	var moved *shard.MovedError
	if errors.As(err, &moved) {
		err = m.topic.shard.Restore(context.WithoutCancel(ctx), moved.Placement)
	}
	if err == nil {
		return
	}
	m.all.Error("move")
	m.log.WarnContext(ctx, "moving stopped for this tick", "shard", m.shard, "error", err)
}

// before is when to look again, for due tasks or for misplaced ones.
func (m *mover) before(next moment) moment {
	if m.state != moverOff && !m.rest.IsZero() && (next.local.IsZero() || m.rest.Before(next.local)) {
		return moment{local: m.rest, redis: next.redis}
	}
	return next
}

func (m *mover) move(ctx context.Context) error {
	if m.state == moverNew {
		return m.start(ctx)
	}
	ids, to, err := m.topic.shard.Scan(ctx, m.shard, m.pass.Cursor, moveScan)
	if err != nil {
		return err
	}
	dirty, err := m.carry(ctx, m.misplaced(ids))
	if err != nil {
		return err
	}
	pass, err := m.topic.shard.Look(ctx, m.shard, m.p, m.pass, to, dirty)
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

// start shows the shard the placement, and becomes its mover unless there is one
// or nothing needs to move.
func (m *mover) start(ctx context.Context) error {
	m.state = moverOff
	if _, err := m.topic.shard.Touch(ctx, m.shard, m.p); err != nil {
		return err
	}
	m.touch(m.shard, m.p.Epoch)
	if m.p.Phase != shard.Migrating || m.isClean(m.p, m.shard) {
		return nil
	}
	mine, err := m.topic.shard.TryMove(ctx, m.shard, m.name, m.settings().Tick+moveLease)
	if err != nil {
		return err
	}
	if !mine { // most likely somebody whose tick is about to end
		m.state, m.rest = moverNew, time.Now().Add(moveRest)
		return nil
	}
	m.state = moverActive
	m.pass, err = m.topic.shard.Pass(ctx, m.shard, m.p)
	return err
}

func (m *mover) misplaced(ids []string) []string {
	out := ids[:0]
	for _, id := range ids {
		if m.p.New(id) != m.shard {
			out = append(out, id)
		}
	}
	return out
}

// carry moves those of the tasks that may be lent, and answers whether any of
// them is still here.
func (m *mover) carry(ctx context.Context, ids []string) (dirty bool, err error) {
	if len(ids) == 0 {
		return false, nil
	}
	m.requests++
	loan, err := m.topic.shard.Lend(ctx, m.p, shard.Lending{
		Shard: m.shard, Claimant: m.name + "/move", Request: strconv.FormatUint(m.requests, 10),
		Lease: moveLease, Soon: m.soon(), IDs: ids,
	})
	if err != nil {
		return true, err
	}
	byShard := map[int][]shard.LentTask{}
	for _, l := range loan.Tasks {
		byShard[m.p.New(l.ID)] = append(byShard[m.p.New(l.ID)], l)
	}
	moved := 0
	for to, lent := range byShard {
		n, err := m.handOver(ctx, loan, to, lent)
		if err != nil {
			return true, err
		}
		moved += n
	}
	m.metrics.Moved(moved)
	return moved < len(ids), nil
}

// soon is which tasks are left to be delivered where they lie. A task that is
// tried again and again is always due soon; after many passes such ones are moved
// too.
func (m *mover) soon() time.Duration {
	if m.pass.Count > movePasses {
		return 0
	}
	return moveSoon
}

// handOver has one shard adopt its share of a loan and removes it here. Where it
// is certain that nothing was adopted the tasks are given back at once; where it
// is not, their lease must run out first.
func (m *mover) handOver(ctx context.Context, loan shard.Loan, to int, lent []shard.LentTask) (int, error) {
	deadline := loan.Deadline - moveMargin.Milliseconds()
	_, err := m.topic.shard.Adopt(ctx, to, m.p, deadline, lent)
	var moved *shard.MovedError
	if errors.As(err, &moved) || errors.Is(err, shard.ErrLate) {
		back := make([]shard.Release, len(lent))
		for i, l := range lent {
			back[i].Lease = shard.Lease{ID: l.ID, Token: loan.Token}
		}
		_, releasing := m.topic.shard.Release(ctx, m.shard, back)
		return 0, errors.Join(err, releasing)
	}
	if err != nil {
		return 0, err
	}
	leases := make([]shard.Lease, len(lent))
	for i, l := range lent {
		leases[i] = shard.Lease{ID: l.ID, Token: loan.Token}
	}
	return m.topic.shard.Settle(ctx, m.shard, leases)
}

// finish notes that the shard is clean, and ends the change if it was the last.
func (m *mover) finish(ctx context.Context) error {
	m.state = moverOff
	left, err := m.topic.shard.MarkClean(ctx, m.p, m.shard)
	if err != nil || left != 0 {
		return err
	}
	return m.finishChange(ctx, m.p)
}

// leave lets another worker move on with the shard.
func (m *mover) leave(ctx context.Context) {
	if m.state != moverActive {
		return
	}
	if err := m.topic.shard.StopMove(context.WithoutCancel(ctx), m.shard); err != nil {
		m.log.DebugContext(ctx, "shard's mover not free yet", "shard", m.shard, "error", err)
	}
}
