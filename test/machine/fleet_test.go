package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// These values are the same as in package scanner.
const (
	claimLease = 30 * time.Second
	moveLease  = 5 * time.Second
	moveSoon   = 2 * moveLease
	moveMargin = time.Second
)

// reason is the reason for parking tasks.
const reason = "312 NO_ROUTE"

// publishResult is the result of publishing the messages of one claim.
type publishResult string

const (
	confirmed      publishResult = "confirmed"
	unsent         publishResult = "not sent"
	unknown        publishResult = "sent, the confirm lost"
	returned       publishResult = "returned"
	refusedForGood publishResult = "returned for the last time"
)

// scan is one claim of a scanner.
type scan struct {
	name          string
	shard, limit  int
	publishResult publishResult
}

// scan claims tasks, publishes them, and settles or releases them, as a worker and its
// settler do.
func (m *machine) scan(ctx context.Context, a *actor, s scan) error {
	claim := shard.Claim{Claimant: s.name, Request: "1", Limit: s.limit, Lease: claimLease}
	began := m.steps
	batch, err := m.topic.Shard(s.shard).Claim(ctx, claim)
	if err != nil || len(batch.Tasks)+len(batch.Bad)+batch.Skipped == 0 {
		return err
	}
	if batch.Skipped+len(batch.Bad) > 0 {
		return fmt.Errorf("%s can't read %d tasks", s.name, batch.Skipped+len(batch.Bad))
	}
	versions, err := m.versions(batch.Tasks, began)
	if err != nil {
		return err
	}
	if s.publishResult != unsent && a != nil {
		a.step("publish")
	}
	for _, v := range versions {
		if err := m.published(v, s.publishResult); err != nil {
			return err
		}
	}
	return m.settle(ctx, s, batch)
}

// settle settles or releases what was claimed. A recurring task goes on to its next run.
func (m *machine) settle(ctx context.Context, s scan, batch shard.Batch) error {
	var leases []shard.Lease
	var releases []shard.Release
	var runs []shard.Advance
	for i := range batch.Tasks {
		c := &batch.Tasks[i]
		lease := c.Lease()
		switch over := s.publishResult == refusedForGood; {
		case c.Recurrence != nil && (over || s.publishResult == confirmed):
			next := c.Advance(batch.Now)
			next.Parked = over
			runs = append(runs, next)
		case s.publishResult == confirmed:
			leases = append(leases, lease)
		default:
			releases = append(releases, s.publishResult.release(lease))
		}
	}
	at, errs := m.topic.Shard(s.shard), [3]error{}
	if len(leases) > 0 {
		_, errs[0] = at.Settle(ctx, leases)
	}
	if len(releases) > 0 {
		_, errs[1] = at.Release(ctx, releases)
	}
	if len(runs) > 0 {
		_, errs[2] = at.Advance(ctx, runs)
	}
	return errors.Join(errs[:]...)
}

// version is a claimed version, and its record.
type version struct {
	*operation
	record shard.Record
}

// published records the result of publishing one message.
func (m *machine) published(v version, f publishResult) error {
	switch {
	case v.record.Recurrence == nil:
		v.excused = v.excused || f == unknown
		v.mayPark = v.mayPark || f == refusedForGood
	case f == unknown:
		v.runs.excused[plannedOf(&v.record)] = true
	case f == refusedForGood:
		v.runs.refused[plannedOf(&v.record)] = true
		if v.record.Recurrence.Runs == 1 {
			v.delivered++
		}
	}
	if f == confirmed || f == unknown {
		return m.deliver(v.operation, &v.record)
	}
	return nil
}

func (f publishResult) release(l shard.Lease) shard.Release {
	back := shard.Release{Lease: l}
	switch f {
	case unknown:
		back.Redelivered, back.Reason = true, "confirm lost"
	case returned:
		back.Attempted, back.Reason, back.Delay = true, reason, time.Second
	case refusedForGood:
		back.Attempted, back.Reason, back.Park = true, reason, true
	}
	return back
}

// versions returns the versions of the tasks just claimed.
func (m *machine) versions(claimed []shard.Claimed, began int) ([]version, error) {
	var versions []version
	for _, c := range claimed {
		text, err := m.rdb.HGet(m.ctx, fmt.Sprintf("%s:task:{%s:%d}", prefix, topic, c.Shard), c.ID).Result()
		if err != nil {
			return nil, err
		}
		r, err := shard.DecodeRecord(topic, c.ID, text)
		if err != nil {
			return nil, err
		}
		if err := m.claimed(r, began, m.interceptor.now); err != nil {
			return nil, err
		}
		versions = append(versions, version{m.version(r.Op), r})
	}
	return versions, nil
}

// mover moves tasks as package scanner does, but without turns, pauses and the mover's
// lock: no promise depends on them.
type mover struct {
	*machine
	name     string
	shard    int
	page     int
	soon     time.Duration
	p        shard.Placement
	pass     shard.Pass
	requests int
}

// run moves tasks until the shard is clean, for at most three passes.
func (v *mover) run(ctx context.Context) error {
	var err error
	if v.p, err = v.topic.Placement(ctx); err != nil {
		return err
	}
	if _, err := v.topic.Shard(v.shard).Fence(ctx, v.p); err != nil || v.p.Phase != shard.Migrating {
		return err
	}
	clean, err := v.topic.Clean(ctx, v.p)
	if err != nil {
		return err
	}
	if !slices.Contains(clean, false) {
		return v.end(ctx)
	}
	if v.shard >= v.p.Scanned() || clean[v.shard] {
		return nil
	}
	if v.pass, err = v.topic.Shard(v.shard).Pass(ctx, v.p); err != nil {
		return err
	}
	for range 3 * len(v.ids) {
		if err := v.move(ctx); err != nil || v.pass.Clean {
			return err
		}
	}
	return nil
}

func (v *mover) move(ctx context.Context) error {
	ids, to, err := v.topic.Shard(v.shard).Scan(ctx, v.pass.Cursor, v.page)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return v.p.New(id) == v.shard })
	dirty, err := v.carry(ctx, ids)
	if err != nil {
		return err
	}
	v.pass, err = v.topic.Shard(v.shard).ScanPass(ctx, v.p, v.pass, to, dirty)
	if err != nil || !v.pass.Clean {
		return err
	}
	left, err := v.topic.MarkClean(ctx, v.p, v.shard)
	if err != nil || left != 0 {
		return err
	}
	return v.end(ctx)
}

func (v *mover) end(ctx context.Context) error {
	_, err := v.topic.Finish(ctx, v.p)
	return err
}

func (v *mover) carry(ctx context.Context, ids []string) (dirty bool, err error) {
	if len(ids) == 0 {
		return false, nil
	}
	v.requests++
	export, err := v.topic.Shard(v.shard).Export(ctx, v.p, shard.Export{
		Claimant: v.name, Request: fmt.Sprint(v.requests),
		Lease: moveLease, Soon: v.soon, IDs: ids,
	})
	if err != nil {
		return true, err
	}
	return v.handOver(ctx, export, len(ids))
}

// handOver reports whether any of the wanted tasks is still in this shard.
func (v *mover) handOver(ctx context.Context, export shard.Exported, wanted int) (dirty bool, err error) {
	byShard := make([]shard.Share, most)
	for _, l := range export.Tasks {
		s := &byShard[v.p.New(l.ID)]
		s.Shard, s.Tasks = v.p.New(l.ID), append(s.Tasks, l)
	}
	shares := slices.DeleteFunc(byShard, func(s shard.Share) bool { return s.Tasks == nil })
	if len(shares) == 0 {
		return wanted > 0, nil
	}
	var gone []shard.Lease
	var back []shard.Release
	var errs []error
	for i, a := range v.topic.Import(ctx, v.p, export.Deadline-moveMargin.Milliseconds(), shares...) {
		var moved *shard.MovedError
		for _, l := range shares[i].Tasks {
			switch lease := (shard.Lease{ID: l.ID, Token: export.Token}); {
			case a.Err == nil:
				gone = append(gone, lease)
			case errors.As(a.Err, &moved), errors.Is(a.Err, shard.ErrLate):
				back = append(back, shard.Release{Lease: lease, Exported: true})
			}
		}
		errs = append(errs, a.Err)
	}
	if len(back) > 0 {
		_, err := v.topic.Shard(v.shard).Release(ctx, back)
		errs = append(errs, err)
	}
	n := 0
	if len(gone) > 0 {
		n, err = v.topic.Shard(v.shard).RemoveExported(ctx, gone)
		errs = append(errs, err)
	}
	return n < wanted, errors.Join(errs...)
}

// staleScripts are the scripts that a shard must refuse if the caller's placement is too
// old.
var staleScripts = []struct {
	name string
	send func(m *machine, at int, p shard.Placement, id string) error
}{
	{"put", func(m *machine, at int, p shard.Placement, id string) error {
		put := shard.Put{Shard: at, Op: "stales",
			Entries: []shard.Entry{{ID: id, When: task.Now(), Body: []byte("\x00stale")}}}
		return m.topic.Put(m.ctx, p, m.interceptor.now+1000, []shard.Put{put})[0].Err
	}},
	{"delete", func(m *machine, at int, p shard.Placement, id string) error {
		stale := shard.Deletion{Names: shard.Names{Shard: at, IDs: []string{id}}, Handled: true}
		return m.topic.Withdraw(m.ctx, p, m.interceptor.now+1000, []shard.Deletion{stale})[0].Err
	}},
	{"reschedule", func(m *machine, at int, p shard.Placement, id string) error {
		_, err := m.topic.Shard(at).Reschedule(m.ctx, p, m.interceptor.now+1000,
			shard.Move{Op: "stales", ID: id, When: task.Now()})
		return err
	}},
	{"fence", func(m *machine, at int, p shard.Placement, id string) error {
		_, err := m.topic.Shard(at).Fence(m.ctx, p, id)
		return err
	}},
	{"read", func(m *machine, at int, p shard.Placement, id string) error {
		_, err := m.topic.Shard(at).Read(m.ctx, p, id)
		return err
	}},
	{"export", func(m *machine, at int, p shard.Placement, id string) error {
		_, err := m.topic.Shard(at).Export(m.ctx, p, shard.Export{Claimant: "stale", Request: "1", Lease: moveLease,
			IDs: []string{id}})
		return err
	}},
	{"import", func(m *machine, at int, p shard.Placement, _ string) error {
		return m.topic.Import(m.ctx, p, m.interceptor.now+1000, shard.Share{Shard: at})[0].Err
	}},
	{"scan_pass", func(m *machine, at int, p shard.Placement, _ string) error {
		_, err := m.topic.Shard(at).ScanPass(m.ctx, p, shard.Pass{}, 0, true)
		return err
	}},
}
