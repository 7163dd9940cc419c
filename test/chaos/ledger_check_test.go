//go:build chaos

package chaos_test

import (
	"fmt"
	"slices"
	"time"
)

// verb is a call of package producer.
type verb string

const (
	verbSchedule   verb = "schedule"
	verbReschedule verb = "reschedule"
	verbCancel     verb = "cancel"
)

// op is a call that returned. The calls for one ID don't overlap.
type op struct {
	Verb            verb
	Began, Returned int64 // Unix ns
	Version         int   // of a schedule
	Due             int64 // in ms; 0: a cancel, or a reschedule that found no task
}

func (o op) String() string {
	return fmt.Sprintf("%s %d due %d, %d to %d", o.Verb, o.Version, o.Due, o.Began/1e6, o.Returned/1e6)
}

// ledger is everything that happened in a run of the application.
type ledger struct {
	ops     map[string][]op // by ID, in order
	entries []entry         // of all consumers, in no order
}

// appReport is the result of checking a ledger.
type appReport struct {
	calls                             map[verb]int
	handled, retries, steps           int
	superseded, acked, repeats        int // deliveries without a handler, and calls again
	promised, finished, early, parked int
	// unasked is the number of handler calls whose question to Redis wasn't seen.
	unasked int
	// between counts handler calls that began after a cancel had returned. The consumer had
	// asked Redis about their deliveries before. latest is the longest such delay.
	between int
	latest  time.Duration
	// late counts first deliveries of a version that were handled after a newer one. That
	// is not promised.
	late int
	// movedOld are reschedules that moved an older version than the last schedule.
	movedOld map[string]int
	gap      time.Duration
	wrong    []string // broken promises
}

func (r *appReport) broken(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// handling is a handler call, with the call of package producer whose version it handles.
type handling struct {
	entry
	op   int // index
	end  int64
	how  result
	next bool // a consumer stored this delivery: a retry or a next step
}

func (h handling) String() string {
	return fmt.Sprintf("version %d step %d attempt %d due %d (first %d %v), asked %d, %d to %d %s", h.Payload.Version,
		h.Payload.Step, h.Attempt, h.Due, h.First, h.Payload.Starts, h.Asked/1e6, h.At/1e6, h.end/1e6, h.how)
}

// check looks for broken promises.
func (l *ledger) check() *appReport {
	r := &appReport{calls: map[verb]int{}, movedOld: map[string]int{}}
	all := l.handlings(r)
	r.gap = l.longestGap()
	for id, ops := range l.ops {
		for _, o := range ops {
			r.calls[o.Verb]++
		}
		for _, h := range all[id] {
			r.checkCancelled(h, ops)
			r.checkReplaced(h, ops, all[id])
			r.checkOrder(h, ops, all[id])
		}
		if last := promised(ops); last >= 0 {
			r.promised++
			if isFinished(last, all[id]) {
				r.finished++
			} else {
				r.broken("%s: lost %v of %v: handled %v", id, ops[last], ops, all[id])
			}
		}
	}
	return r
}

// handlings returns the handler calls by ID, and counts the other entries.
func (l *ledger) handlings(r *appReport) map[string][]handling {
	type call struct {
		run string
		n   int
	}
	type delivery struct {
		id  string
		due int64
	}
	ends, done, seen := map[call]entry{}, map[delivery]int64{}, map[delivery]bool{}
	for _, e := range l.entries {
		switch e.What {
		case ended:
			ends[call{e.Run, e.Call}] = e
		case remembered:
			if d := (delivery{e.ID, e.Due}); done[d] == 0 || e.At < done[d] {
				done[d] = e.At
			}
		case over:
			r.superseded++
		case repeated:
			r.acked++
		case parkedTask:
			r.parked++
			r.broken("%s: parked", e.ID)
		}
	}
	all := map[string][]handling{}
	for _, e := range l.entries {
		if e.What != begun {
			continue
		}
		end, d := ends[call{e.Run, e.Call}], delivery{e.ID, e.Due}
		h := handling{entry: e, op: versionOf(e, l.ops[e.ID]), end: end.At, how: end.Result}
		if h.op < 0 {
			r.broken("%s: handled %+v, a version that no call stored: %v", e.ID, e, l.ops[e.ID])
			continue
		}
		h.next = l.ops[e.ID][h.op].Due != e.Due
		r.count(h, seen[d])
		if scheduledAt(l.ops[e.ID], h.op) != e.Payload.Version {
			r.movedOld[e.ID] = h.op
		}
		if at := done[d]; at > 0 && at < e.Asked {
			r.broken("%s: handled %v after it was remembered as done", e.ID, h)
		}
		seen[d] = true
		all[e.ID] = append(all[e.ID], h)
	}
	return all
}

func (r *appReport) count(h handling, again bool) {
	r.handled++
	if h.Asked == 0 {
		r.unasked++
	}
	if h.Attempt > 1 {
		r.retries++
	}
	if h.Payload.Step > 0 {
		r.steps++
	}
	if again {
		r.repeats++
	}
	if h.At/int64(time.Millisecond) < h.Due {
		r.early++
		r.broken("%s: handled %v before it was due", h.ID, h)
	}
}

// versionOf returns the index of the call that stored a handled version, or -1: the schedule
// of that version, or a later reschedule. A due time tells them apart: of those with the same
// one, only the last is ever delivered. A next step has a first due time of its own, so the
// earlier ones count too.
func versionOf(e entry, ops []op) int {
	scheduled := slices.IndexFunc(ops, func(o op) bool { return o.Verb == verbSchedule && o.Version == e.Payload.Version })
	if scheduled < 0 {
		return -1
	}
	starts := append(append([]int64{}, e.Payload.Starts...), e.First)
	for s := len(starts) - 1; s >= 0; s-- {
		for i := len(ops) - 1; i >= scheduled; i-- {
			if ops[i].Due == starts[s] && (i == scheduled || ops[i].Verb == verbReschedule) {
				return i
			}
		}
	}
	return -1
}

// scheduledAt returns the version of the last schedule up to a call.
func scheduledAt(ops []op, i int) int {
	for ; i > 0 && ops[i].Verb != verbSchedule; i-- {
	}
	return ops[i].Version
}

// checkCancelled: after a cancel returned, no handler gets a version that was scheduled
// before it (C4). A consumer that had asked Redis before that may call its handler.
func (r *appReport) checkCancelled(h handling, ops []op) {
	scheduled := false
	for _, o := range ops {
		scheduled = scheduled || o.Verb == verbSchedule && o.Version == h.Payload.Version
		if !scheduled || o.Verb != verbCancel {
			continue
		}
		switch {
		case o.Returned < h.Asked:
			r.broken("%s: handled %v after it was cancelled: %v", h.ID, h, ops)
		case o.Returned < h.At:
			r.between++
			r.latest = max(r.latest, time.Duration(h.At-o.Returned))
		}
		return
	}
}

// checkOrder: a retry or a next step isn't handled after a newer version (C4).
func (r *appReport) checkOrder(h handling, ops []op, all []handling) {
	for _, g := range all {
		if g.op <= h.op || g.At >= h.Asked || ops[g.op].Returned >= h.Asked {
			continue
		}
		if h.next {
			r.broken("%s: handled %v after the newer %v: %v", h.ID, h, g, ops)
		} else {
			r.late++
		}
		return
	}
}

// checkReplaced: a retry or a next step doesn't bring back a version that was replaced or
// moved while its handler ran (C4). That holds as long as the newer version is stored. It is
// stored if it isn't due yet.
func (r *appReport) checkReplaced(h handling, ops []op, all []handling) {
	before := int64(0) // when the call ended that the retry or the step follows
	for _, p := range all {
		if h.next && p.op == h.op && p.end > 0 && h.follows(p) && (before == 0 || p.end < before) {
			before = p.end
		}
	}
	newer := false
	for i := h.op + 1; i < len(ops) && ops[i].Began < h.Asked; i++ {
		o := ops[i]
		switch {
		case o.Verb == verbCancel || o.Due > 0 && o.Due <= h.Asked/int64(time.Millisecond):
			return
		case o.Due > 0 && o.Returned < before:
			newer = true
		}
	}
	if newer {
		r.broken("%s: handled %v, replaced while its handler ran: %v", h.ID, h, ops)
	}
}

// follows reports whether h is the retry or the next step of p.
func (h handling) follows(p handling) bool {
	switch p.how {
	case stepped:
		return h.Payload.Step == p.Payload.Step+1
	case postponed:
		return h.Payload.Step == p.Payload.Step && h.Attempt == p.Attempt && h.Due > p.Due
	case failed:
		return h.Payload.Step == p.Payload.Step && h.Attempt == p.Attempt+1
	}
	return false
}

// promised returns the index of the call whose version must be handled to its end, or -1.
func promised(ops []op) int {
	last := -1
	cancelled := true
	for i, o := range ops {
		switch {
		case o.Verb == verbCancel:
			last, cancelled = -1, true
		case o.Verb == verbSchedule:
			last, cancelled = i, false
		case o.Due > 0 && !cancelled:
			last = i
		}
	}
	return last
}

// longestGap returns the longest time between the beginnings of two handler calls.
func (l *ledger) longestGap() (gap time.Duration) {
	var times []int64
	for _, e := range l.entries {
		if e.What == begun {
			times = append(times, e.At)
		}
	}
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		gap = max(gap, time.Duration(times[i]-times[i-1]))
	}
	return gap
}

func isFinished(op int, all []handling) bool {
	for _, h := range all {
		if h.op == op && h.how == finished {
			return true
		}
	}
	return false
}
