package fleet

import (
	"hash/fnv"
	"sync"
	"time"
)

// Key identifies a task.
type Key struct{ Topic, ID string }

// LedgerConfig configures a Ledger.
type LedgerConfig struct {
	// Offset is how far Redis's clock is ahead of this machine's; see ClockOffset.
	// Defaults to 0.
	Offset time.Duration
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
}

// Ledger compares what Redis acknowledged with what arrived. Callers enter each change
// after its call returned, in the order of the calls for one task. They enter deliveries
// as they arrive, even before the call that caused them. Check then compares the two. A
// Ledger is safe for concurrent use.
//
// A version of a task is the result of one Schedule or Reschedule. Its due time and
// payload identify it. Every version must arrive exactly once, unless a later call
// cancelled or replaced it:
//   - If its due time is later than the return of that call, no scanner can have claimed
//     it before. It must not arrive at all.
//   - If it was due before, it may be on its way. It may arrive once or not at all.
//
// A failed call may still have reached Redis, or reach it up to 3 s later. Its version
// may arrive once or not at all, and so may the version that it would have ended. If its
// due time has passed by then, the task gets another one: Redis's time at that moment.
type Ledger struct {
	cfg LedgerConfig

	mu      sync.Mutex
	tasks   map[Key]*account
	count   int
	missing int
}

// account is everything the ledger knows about one task.
type account struct {
	versions []*version
	arrivals []arrival
}

// version is the result of one call.
type version struct {
	identity
	state versionState
	// latestMillis is the latest due time that the version of a failed call may have. It
	// is 0 if the call succeeded or returned the due time.
	latestMillis int64
}

// afterError is how long a failed call may still take effect.
const afterError = 3 * time.Second

// identity identifies the version that a message belongs to.
type identity struct {
	dueMillis int64
	payload   uint64
}

type versionState int

const (
	live      versionState = iota // must arrive once
	possible                      // may arrive once
	cancelled                     // must not arrive
	replaced                      // must not arrive
)

// arrival is one message.
type arrival struct {
	identity
	at          time.Time // by Redis's clock
	redelivered bool      // by the scanner's own header
	requeued    bool      // sent again by the broker because the consumer hadn't acknowledged it
}

// NewLedger returns an empty ledger.
func NewLedger(cfg LedgerConfig) *Ledger {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Ledger{cfg: cfg, tasks: map[Key]*account{}}
}

// Scheduled enters a Schedule that returned due. Its version replaces the one before.
func (l *Ledger) Scheduled(k Key, due time.Time, payload []byte) {
	l.change(k, func(a *account, now int64) {
		a.end(now, replaced)
		a.versions = append(a.versions, &version{identity: identity{due.UnixMilli(), sum(payload)}, state: live})
	})
}

// Rescheduled enters a Reschedule that returned due. The payload stays the same.
func (l *Ledger) Rescheduled(k Key, due time.Time) {
	l.change(k, func(a *account, now int64) {
		payload := a.payload()
		a.end(now, replaced)
		a.versions = append(a.versions, &version{identity: identity{due.UnixMilli(), payload}, state: live})
	})
}

// Cancelled enters a Cancel that returned without an error.
func (l *Ledger) Cancelled(k Key) {
	l.change(k, func(a *account, now int64) { a.end(now, cancelled) })
}

// MaybeScheduled enters a Schedule that failed, but may have reached Redis.
func (l *Ledger) MaybeScheduled(k Key, due time.Time, payload []byte) {
	l.change(k, func(a *account, now int64) {
		a.loosen()
		a.failed(now, identity{due.UnixMilli(), sum(payload)})
	})
}

// MaybeRescheduled enters a Reschedule that failed and may have reached Redis.
func (l *Ledger) MaybeRescheduled(k Key, due time.Time) {
	l.change(k, func(a *account, now int64) {
		a.loosen()
		a.failed(now, identity{due.UnixMilli(), a.payload()})
	})
}

// MaybeCancelled enters a Cancel that failed and may have reached Redis.
func (l *Ledger) MaybeCancelled(k Key) {
	l.change(k, func(a *account, _ int64) { a.loosen() })
}

func (l *Ledger) change(k Key, do func(a *account, nowMillis int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(k)
	l.missing -= a.missing()
	do(a, l.cfg.Now().Add(l.cfg.Offset).UnixMilli())
	l.missing += a.missing()
}

func (l *Ledger) account(k Key) *account {
	a := l.tasks[k]
	if a == nil {
		a = &account{}
		l.tasks[k] = a
	}
	return a
}

// end ends all versions that may still arrive, because a call that just returned has
// cancelled or replaced them.
func (a *account) end(nowMillis int64, as versionState) {
	for _, v := range a.versions {
		switch {
		case v.state == cancelled || v.state == replaced:
		case v.dueMillis > nowMillis:
			v.state = as
		default:
			v.state = possible
		}
	}
}

// failed adds the version that a call may have made, or may still make, although it just
// failed.
func (a *account) failed(nowMillis int64, id identity) {
	a.versions = append(a.versions, &version{identity: id, state: possible,
		latestMillis: nowMillis + afterError.Milliseconds()})
}

// made returns the identity of the version that a message belongs to. Normally that is id
// itself. It differs if a failed call was executed after its due time, and so got a later
// one.
func (a *account) made(id identity) identity {
	late := id
	for _, v := range a.versions {
		if v.identity == id {
			return id
		}
		if v.payload == id.payload && v.dueMillis < id.dueMillis && id.dueMillis <= v.latestMillis {
			late = v.identity
		}
	}
	return late
}

// loosen allows every live version not to arrive, since a failed call may have ended it.
func (a *account) loosen() {
	for _, v := range a.versions {
		if v.state == live {
			v.state = possible
		}
	}
}

// missing counts the versions that must still arrive: they were scheduled, and neither
// replaced nor cancelled.
func (a *account) missing() int {
	n := 0
	for i, v := range a.versions {
		if v.state == live && a.arrived(v.identity) <= a.liveBefore(i) {
			n++
		}
	}
	return n
}

func (a *account) arrived(id identity) int {
	n := 0
	for _, m := range a.arrivals {
		if m.identity == id {
			n++
		}
	}
	return n
}

// liveBefore counts the live versions before the i-th with the same identity.
func (a *account) liveBefore(i int) int {
	n := 0
	for _, v := range a.versions[:i] {
		if v.state == live && v.identity == a.versions[i].identity {
			n++
		}
	}
	return n
}

// payload returns the payload of the newest version.
func (a *account) payload() uint64 {
	if len(a.versions) == 0 {
		return 0
	}
	return a.versions[len(a.versions)-1].payload
}

// Delivered enters a message.
func (l *Ledger) Delivered(d Delivery) {
	due, _ := d.Headers["x-duefleet-due"].(int64)
	redelivered, _ := d.Headers["x-duefleet-redelivered"].(bool)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	a := l.account(Key{d.Type, d.MessageId})
	l.missing -= a.missing()
	defer func() { l.missing += a.missing() }()
	a.arrivals = append(a.arrivals, arrival{
		identity:    identity{due, sum(d.Body)},
		at:          d.At.Add(l.cfg.Offset),
		redelivered: redelivered,
		requeued:    d.Redelivered,
	})
}

// Count returns the number of messages that arrived.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Missing returns the number of versions that must still arrive. The call is cheap.
func (l *Ledger) Missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.missing
}

func sum(payload []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(payload) // never fails
	return h.Sum64()
}
