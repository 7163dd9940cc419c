package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/task"
)

// verifyShown is how many IDs the report names for each kind of mistake.
const verifyShown = 10

// verifyTask is a task that is scheduled and not delivered.
type verifyTask struct {
	due time.Time
	// known is false until a call has returned that the task is stored.
	known bool
}

// verifyLedger compares the deliveries with what was scheduled. It remembers the tasks that
// are outstanding: each other number below next was delivered, or wasn't stored.
type verifyLedger struct {
	prefix string // of the IDs; a number follows

	mu          sync.Mutex
	next        uint64
	outstanding map[uint64]verifyTask
	// marked holds tasks whose first delivery was marked as a possible repeat, and stored
	// those that a second call may have stored again.
	marked, stored recentNumbers

	scheduled, delivered     int64
	early                    []string // at most verifyShown
	earlyCount               int64
	unmarked                 []string // at most verifyShown
	unmarkedCount            int64
	markedCount, storedCount int64
	foreign                  int64
	late                     latenesses
}

func newVerifyLedger(prefix string) *verifyLedger {
	return &verifyLedger{prefix: prefix, outstanding: map[uint64]verifyTask{}}
}

// id returns the ID of a task.
func (l *verifyLedger) id(n uint64) string { return l.prefix + strconv.FormatUint(n, 10) }

// reserve adds tasks before they are scheduled, and returns the number of the first one.
func (l *verifyLedger) reserve(dues []time.Time) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.next
	for _, due := range dues {
		l.outstanding[l.next] = verifyTask{due: due}
		l.next++
	}
	return first
}

// know notes that a task is stored, with the due time that the call returned.
func (l *verifyLedger) know(n uint64, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scheduled++
	if _, there := l.outstanding[n]; there {
		l.outstanding[n] = verifyTask{due, true}
	}
}

// withdraw removes a task that certainly isn't stored.
func (l *verifyLedger) withdraw(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.outstanding, n)
}

// storeAgain reports whether a task must be scheduled again. It need not if it was delivered.
// If the last call is uncertain, the task may then be stored twice in a row.
func (l *verifyLedger) storeAgain(n uint64, uncertain bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, there := l.outstanding[n]
	if there && uncertain {
		l.stored.add(n)
	}
	return there
}

// left returns the number of outstanding tasks.
func (l *verifyLedger) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.outstanding)
}

// missing returns the outstanding tasks that are known to be stored, in order, and the
// number of those that aren't known.
func (l *verifyLedger) missing() (known []uint64, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(l.outstanding)) {
		if l.outstanding[n].known {
			known = append(known, n)
		} else {
			unknown++
		}
	}
	return known, unknown
}

// arrive counts a message that arrived at Redis's time now, which may be wrong by within.
func (l *verifyLedger) arrive(d amqp.Delivery, now time.Time, within time.Duration) {
	t, err := consumer.Parse(d)
	digits, ours := strings.CutPrefix(d.MessageId, l.prefix)
	n, numErr := strconv.ParseUint(digits, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !ours || numErr != nil || n >= l.next {
		l.foreign++
		return
	}
	expected, first := l.outstanding[n]
	if !first {
		l.repeat(n, t)
		return
	}
	delete(l.outstanding, n)
	l.delivered++
	if t.Redelivered {
		l.marked.add(n)
	}
	due := expected.due
	if !expected.known && t.Due.After(due) {
		due = t.Due // a due time in the past means the time of the call, which has not returned
	}
	if late := now.Sub(due); late < -within {
		l.earlyCount++
		l.early = l.note(l.early, n, fmt.Sprintf(" by %v", -late.Round(time.Microsecond)))
	} else {
		l.late.add(max(late, 0))
	}
}

// repeat counts a further delivery of a task. If either delivery is marked, the broker may
// have changed their order.
func (l *verifyLedger) repeat(n uint64, t task.Task) {
	switch {
	case t.Redelivered || l.marked.has(n):
		l.markedCount++
	case l.stored.has(n):
		l.storedCount++
	default:
		l.unmarkedCount++
		l.unmarked = l.note(l.unmarked, n, "")
	}
}

func (l *verifyLedger) note(ids []string, n uint64, more string) []string {
	if len(ids) < verifyShown {
		ids = append(ids, l.id(n)+more)
	}
	return ids
}

// recentNumbers is a set that forgets old members, to bound its memory.
type recentNumbers struct{ now, before map[uint64]struct{} }

const recentMost = 200_000

func (r *recentNumbers) add(n uint64) {
	if r.now == nil || len(r.now) >= recentMost {
		r.now, r.before = map[uint64]struct{}{}, r.now
	}
	r.now[n] = struct{}{}
}

func (r *recentNumbers) has(n uint64) bool {
	_, now := r.now[n]
	_, before := r.before[n]
	return now || before
}
