package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/task"
)

// shown is how many tasks the report names for each kind of mistake.
const shown = 10

// entry is a task that is scheduled and not delivered.
type entry struct {
	due time.Time
	// known is false until a call has returned that the task is stored.
	known bool
}

// ledger compares the deliveries with what was scheduled. It remembers the tasks that are
// outstanding: each other number below next was delivered, or wasn't stored.
type ledger struct {
	mu          sync.Mutex
	next        uint64
	outstanding map[uint64]entry
	// marked holds tasks whose first delivery was marked as a possible repeat, and stored
	// tasks that a second call may have stored again. Only faults make them grow.
	marked, stored map[uint64]bool
	late           balance.Lateness
	latest         time.Duration // the largest lateness
	report         Report        // counts the tasks
}

func newLedger(topic, prefix string) *ledger {
	return &ledger{
		outstanding: map[uint64]entry{}, marked: map[uint64]bool{}, stored: map[uint64]bool{}, late: balance.Lateness{},
		report: Report{
			Topic: topic, Prefix: prefix, LostTasks: []LostTask{}, EarlyTasks: []string{}, UnmarkedTasks: []string{},
		},
	}
}

// id returns the ID of a task.
func (l *ledger) id(n uint64) string { return l.report.Prefix + strconv.FormatUint(n, 10) }

// reserve adds a task before it is scheduled, and returns its number.
func (l *ledger) reserve(due time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outstanding[l.next] = entry{due: due}
	l.next++
	return l.next - 1
}

// know notes that a task is stored, with the due time that the call returned.
func (l *ledger) know(n uint64, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Scheduled++
	if _, there := l.outstanding[n]; there {
		l.outstanding[n] = entry{due, true}
	}
}

// fail notes that a call for a task failed, and reports whether the task must be scheduled
// again. It need not if it was delivered, so an earlier call had stored it. After the last
// call, a task that certainly isn't stored is no longer outstanding.
func (l *ledger) fail(n uint64, err error, last bool) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, waits := l.outstanding[n]
	notStored := errors.Is(err, task.ErrUnavailable) || stays(err)
	switch {
	case !waits:
		l.report.Scheduled++
	case last && notStored:
		delete(l.outstanding, n)
	case !last && !notStored:
		l.stored[n] = true
	}
	return waits && !last
}

// waitsLong notes that the call for a task takes long. The library may have repeated it, and stored
// a task again that was delivered meanwhile.
func (l *ledger) waitsLong(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored[n] = true
}

// left returns the number of outstanding tasks.
func (l *ledger) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.outstanding)
}

// missing returns the outstanding tasks that are known to be stored, in order, and the
// number of those that aren't known.
func (l *ledger) missing() (known []uint64, unknown int) {
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
func (l *ledger) arrive(d amqp.Delivery, now time.Time, within time.Duration) {
	t, err := consumer.Parse(d)
	digits, ours := strings.CutPrefix(d.MessageId, l.report.Prefix)
	n, numErr := strconv.ParseUint(digits, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !ours || numErr != nil || n >= l.next {
		l.report.Foreign++
		return
	}
	expected, first := l.outstanding[n]
	if !first {
		l.repeat(n, t)
		return
	}
	delete(l.outstanding, n)
	l.report.Delivered++
	if t.Redelivered {
		l.marked[n] = true
	}
	due := expected.due
	if !expected.known && t.Due.After(due) {
		due = t.Due // a due time in the past means the time of the call, which has not returned
	}
	if late := now.Sub(due); late < -within {
		if l.report.Early++; l.report.Early <= shown {
			text := fmt.Sprintf("%s by %v", l.id(n), -late.Round(time.Microsecond))
			l.report.EarlyTasks = append(l.report.EarlyTasks, text)
		}
	} else {
		l.late[balance.LatenessBucket(late)]++
		l.latest = max(l.latest, late)
	}
}

// repeat counts a further delivery of a task. If either delivery is marked, the broker may
// have changed their order.
func (l *ledger) repeat(n uint64, t task.Task) {
	switch {
	case t.Redelivered || l.marked[n]:
		l.report.Marked++
	case l.stored[n]:
		l.report.Restored++
	default:
		if l.report.Unmarked++; l.report.Unmarked <= shown {
			l.report.UnmarkedTasks = append(l.report.UnmarkedTasks, l.id(n))
		}
	}
}
