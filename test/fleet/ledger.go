package fleet

import (
	"hash/fnv"
	"sync"
	"time"
)

// Key names a task.
type Key struct{ Topic, ID string }

// LedgerConfig of a Ledger.
type LedgerConfig struct {
	// Offset is how far Redis's clock is ahead of this machine's; see
	// ClockOffset. Defaults to 0.
	Offset time.Duration
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
}

// Ledger holds what Redis acknowledged against what arrived. Whoever schedules
// enters each change once its call returned, in the order of the calls for one
// task; deliveries are entered as they come, also before the entry of the call
// that caused them. Check then holds the two together. It is safe for
// concurrent use.
//
// A version of a task is what one Schedule or Reschedule made of it, and is
// known again by its due time and its payload. Every version must arrive
// exactly once, unless it was cancelled or replaced:
//   - one whose due time came after that call had returned can't have been
//     claimed before it, and so must not arrive at all;
//   - one that was due before may be on its way: it may arrive once, or not.
//
// A call that failed may have reached Redis all the same, up to 3 s later: what it would
// have made may arrive once or not, and so may what it would have ended. If its due time
// was over by then, the task has another one: Redis's time at that moment.
type Ledger struct {
	cfg LedgerConfig

	mu      sync.Mutex
	tasks   map[Key]*account
	count   int
	missing int
}

// account is all that is known of one task.
type account struct {
	versions []*version
	arrivals []arrival
}

// version is what one acknowledged call made.
type version struct {
	identity
	state versionState
	// latestMillis is the latest due time that the version of a failed call may have. 0:
	// the call didn't fail, or has told the due time.
	latestMillis int64
}

// afterError is for how long a call that failed may still take effect.
const afterError = 3 * time.Second

// identity is by what a message tells which version it is.
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
	requeued    bool      // came again because the consumer had not acknowledged it
}

// NewLedger returns an empty ledger.
func NewLedger(cfg LedgerConfig) *Ledger {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Ledger{cfg: cfg, tasks: map[Key]*account{}}
}

// Scheduled enters a Schedule that returned due: it replaces what was there.
func (l *Ledger) Scheduled(k Key, due time.Time, payload []byte) {
	l.change(k, func(a *account, now int64) {
		a.end(now, replaced)
		a.versions = append(a.versions, &version{identity: identity{due.UnixMilli(), sum(payload)}, state: live})
	})
}

// Rescheduled enters a Reschedule that returned due: it keeps the payload.
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

// MaybeScheduled enters a Schedule that failed and may have reached Redis.
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

// end closes what has not ended yet by a call that returned just now.
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

// failed adds what a call may have made, or may make yet, that failed just now.
func (a *account) failed(nowMillis int64, id identity) {
	a.versions = append(a.versions, &version{identity: id, state: possible, latestMillis: nowMillis + afterError.Milliseconds()})
}

// made returns which version of the task has an identity: that of the call that made it,
// unless that call failed and was carried out when its due time was over.
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

// loosen is for a call that may have ended what is there.
func (a *account) loosen() {
	for _, v := range a.versions {
		if v.state == live {
			v.state = possible
		}
	}
}

// missing counts the versions that must arrive and have not.
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

// liveBefore counts the live versions before the i-th that look like it.
func (a *account) liveBefore(i int) int {
	n := 0
	for _, v := range a.versions[:i] {
		if v.state == live && v.identity == a.versions[i].identity {
			n++
		}
	}
	return n
}

// payload is the newest version's.
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

// Count is how many messages arrived.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Missing is how many versions must still arrive. It costs nothing to ask.
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
