package verify

import (
	"fmt"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

// TestLedger: each kind of delivery is counted as what it is.
func TestLedger(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1_800_000_000_000)
	const within = 2 * time.Millisecond
	arrive := func(l *ledger, n int, after time.Duration, marked bool) {
		l.arrive(amqp.Delivery{
			MessageId: fmt.Sprintf("verify-x-%d", n), Type: "orders",
			Headers: amqp.Table{task.HeaderDue: due.UnixMilli(), task.HeaderScheduled: due.UnixMilli(),
				task.HeaderRedelivered: marked},
		}, due.Add(after), within)
	}
	late := func(l *ledger) (n int64) {
		for _, tasks := range l.late {
			n += tasks
		}
		return n
	}
	for name, c := range map[string]struct {
		do   func(l *ledger)
		want func(l *ledger) bool
	}{
		"delivered": {func(l *ledger) { arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.report.Delivered == 1 && late(l) == 1 && l.report.Early == 0 }},
		"early by the error": {func(l *ledger) { arrive(l, 0, -within, false) },
			func(l *ledger) bool { return l.report.Early == 0 && l.latest == 0 && late(l) == 1 }},
		"early by more": {func(l *ledger) { arrive(l, 0, -within-time.Microsecond, false) },
			func(l *ledger) bool {
				return l.report.Early == 1 && l.report.EarlyTasks[0] == "verify-x-0 by 2.001ms" && late(l) == 0
			}},
		"repeated": {func(l *ledger) { arrive(l, 0, 0, false); arrive(l, 0, 0, false) },
			func(l *ledger) bool {
				return l.report.Unmarked == 1 && l.report.UnmarkedTasks[0] == "verify-x-0" && l.report.Delivered == 1
			}},
		"repeated and marked": {func(l *ledger) { arrive(l, 0, 0, false); arrive(l, 0, 0, true) },
			func(l *ledger) bool { return l.report.Unmarked == 0 && l.report.Marked == 1 }},
		"the marked one first": {func(l *ledger) { arrive(l, 0, 0, true); arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.report.Unmarked == 0 && l.report.Marked == 1 }},
		"stored twice": {func(l *ledger) {
			l.fail(0, task.ErrUncertain, false)
			arrive(l, 0, 0, false)
			arrive(l, 0, 0, false)
		},
			func(l *ledger) bool { return l.report.Unmarked == 0 && l.report.Restored == 1 }},
		"stored twice by one call": {func(l *ledger) {
			l.waitsLong(0)
			arrive(l, 0, 0, false)
			arrive(l, 0, 0, false)
		},
			func(l *ledger) bool { return l.report.Unmarked == 0 && l.report.Restored == 1 }},
		"a wrong due time in the message": {func(l *ledger) {
			l.arrive(amqp.Delivery{MessageId: "verify-x-0", Type: "orders", Headers: amqp.Table{
				task.HeaderDue: due.UnixMilli() + 1000, task.HeaderScheduled: due.UnixMilli(),
			}}, due.Add(time.Second), within)
		}, func(l *ledger) bool { return l.latest == time.Second }},
		"never scheduled": {func(l *ledger) { arrive(l, 2, 0, false) },
			func(l *ledger) bool { return l.report.Foreign == 1 && l.report.Delivered == 0 }},
		"no task": {func(l *ledger) { l.arrive(amqp.Delivery{}, due, 0) },
			func(l *ledger) bool { return l.report.Foreign == 1 }},
		"certainly not stored": {func(l *ledger) { l.fail(0, task.ErrUnavailable, true); l.fail(1, task.ErrInvalid, true) },
			func(l *ledger) bool { return l.left() == 0 && l.report.Scheduled == 2 }},
		"perhaps not stored": {func(l *ledger) { l.fail(0, task.ErrUncertain, true) },
			func(l *ledger) bool { return l.left() == 2 && len(l.stored) == 0 }},
		"delivered after a failure": {func(l *ledger) { arrive(l, 0, 0, false); l.fail(0, task.ErrUncertain, false) },
			func(l *ledger) bool { return l.left() == 1 && l.report.Scheduled == 3 && len(l.stored) == 0 }},
		"to store again": {func(l *ledger) {
			l.fail(0, task.ErrUnavailable, false)
			arrive(l, 0, 0, false)
			arrive(l, 0, 0, false)
		},
			func(l *ledger) bool { return l.report.Unmarked == 1 && l.report.Restored == 0 }},
		"stored later": {func(l *ledger) { l.know(0, due.Add(time.Second)); arrive(l, 0, time.Second, false) },
			func(l *ledger) bool { return l.latest == 0 && l.report.Early == 0 }},
	} {
		l := newLedger("orders", "verify-x-")
		l.reserve(due)
		l.reserve(due)
		l.know(0, due)
		l.know(1, due)
		if c.do(l); !c.want(l) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
