//go:build chaos

package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/fleet"
)

// TestVerdictCanFail: ledger and verdict find a lost task, an early one, a cancelled one,
// an outdated one and a repeat. An allowance accepts exactly what its fault explains.
func TestVerdictCanFail(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	k := fleet.Key{Topic: "orders", ID: "o-1"}
	arrive := func(l *fleet.Ledger, due, at time.Time, marked bool) {
		l.Delivered(fleet.Delivery{At: at, Delivery: amqp.Delivery{
			MessageId: k.ID, Type: k.Topic, Body: []byte("p"),
			Headers: amqp.Table{"x-duefleet-due": due.UnixMilli(), "x-duefleet-redelivered": marked},
		}})
	}
	due := now.Add(time.Minute)
	for name, test := range map[string]struct {
		happens func(l *fleet.Ledger)
		want    string    // part of the error
		excused allowance // the allowance that accepts it; the zero value if none does
	}{
		"all is well": {func(l *fleet.Ledger) { arrive(l, due, due, false) }, "", allowance{}},
		"lost":        {func(*fleet.Ledger) {}, "1 lost", allowance{lost: 1}},
		"early":       {func(l *fleet.Ledger) { arrive(l, due, due.Add(-time.Millisecond), false) }, "1 early", allowance{}},
		"repeat, marked": {func(l *fleet.Ledger) {
			arrive(l, due, due, false)
			arrive(l, due, due.Add(time.Second), true)
		}, "1 repeats", allowance{repeats: 1}},
		"repeat, not marked": {func(l *fleet.Ledger) {
			arrive(l, due, due, false)
			arrive(l, due, due.Add(time.Second), false)
		}, "not marked", allowance{repeats: 1, unmarked: 1}},
		"cancelled": {func(l *fleet.Ledger) {
			l.Cancelled(k)
			arrive(l, due, due, false)
		}, "after they were cancelled", allowance{undone: 1}},
		"outdated": {func(l *fleet.Ledger) {
			l.Scheduled(k, due.Add(time.Minute), []byte("p"))
			arrive(l, due.Add(time.Minute), due.Add(time.Minute), false)
			arrive(l, due, due, false)
		}, "replaced", allowance{undone: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := fleet.NewLedger(fleet.LedgerConfig{Now: func() time.Time { return now }})
			l.Scheduled(k, due, []byte("p"))
			test.happens(l)
			report := l.Check()
			if got := fmt.Sprint(judge(report, allowance{})); test.want == "" && got != "<nil>" ||
				!strings.Contains(got, test.want) {
				t.Errorf("the verdict is %q, want %q in it", got, test.want)
			}
			err := judge(report, test.excused)
			if excusable := test.want == "" || test.excused != (allowance{}); (err == nil) != excusable {
				t.Errorf("explained by %+v, the verdict is %v", test.excused, err)
			}
		})
	}
}
