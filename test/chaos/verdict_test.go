//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// With -update, TestMain writes the table of faults into docs/faults.md.
var target = flag.String("target", "chaos", "the make target that writes the table: chaos or cluster")

// allowance says how far a fault excuses broken promises.
type allowance struct {
	// repeats is the number of messages that may arrive again, each marked as
	// redelivered.
	repeats int
	// unmarked is how many of the repeats need no mark. They come from a schedule whose
	// reply was lost, or from a settle that Redis lost.
	unmarked int
	// lost is the number of tasks that may be lost.
	lost int
	// undone is the number of cancels and reschedules that may be lost. Their tasks are
	// then delivered as before.
	undone int
	// stored is the number of tasks that may be left over: parked ones.
	stored int
}

// verdict ends a test: it stops the load, waits for the promised tasks, and checks that
// the ledger finds nothing that the fault doesn't explain.
func (r *harness) verdict(fault string, allowed allowance) {
	r.t.Helper()
	r.load.stop()
	ledger := r.recorder.Ledger
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	// Lost tasks never arrive, so wait only as long as a late one may take.
	if allowed.lost > 0 {
		ctx, cancel = context.WithTimeout(ctx, 2*leaseTime+5*time.Second)
		defer cancel()
	}
	_ = fleet.Await(ctx, func() bool { return ledger.Missing() == 0 })
	stored := r.awaitEmpty(int64(allowed.stored))
	r.stop()
	r.quiet()
	report := ledger.Check()
	results.add(row{fault, report, r.arrivals.gap, int(stored), int(r.load.failed.Load())})
	r.t.Logf("%s: %d promised, %d delivered, %d lost, %d repeated (%d unmarked), %d optional of which %d arrived, %d "+
		"stored, longest gap %s, %.0f tasks/s, %d calls failed, the last with: %v",
		fault, report.Promised, report.Delivered, report.Lost, report.Duplicated, report.Unmarked, report.Optional,
		report.Arrived,
		stored, r.arrivals.gap.Round(time.Millisecond), r.load.rate, r.load.failed.Load(), r.load.last.Load())
	if err := judge(report, allowed); err != nil {
		r.t.Error(err)
	}
	if stored > int64(allowed.stored) {
		r.t.Errorf("%d tasks are stored in the end, want at most %d", stored, allowed.stored)
	}
}

// judge returns an error for everything in a report that isn't allowed.
func judge(report fleet.Report, allowed allowance) error {
	var errs []error
	if report.Duplicated > allowed.repeats {
		errs = append(errs, fmt.Errorf("%d repeats, want at most %d", report.Duplicated, allowed.repeats))
	}
	if report.Unmarked > allowed.unmarked {
		errs = append(errs, fmt.Errorf("%d repeats are not marked as redelivered, want at most %d", report.Unmarked,
			allowed.unmarked))
	}
	if report.Lost > allowed.lost {
		errs = append(errs, fmt.Errorf("%d lost, want at most %d", report.Lost, allowed.lost))
	}
	if undone := report.Cancelled + report.Outdated; undone > allowed.undone {
		errs = append(errs, fmt.Errorf("%d cancels and reschedules had no effect, want at most %d", undone, allowed.undone))
	}
	found := report.Err()
	report.Duplicated, report.Lost, report.Cancelled, report.Outdated = 0, 0, 0, 0
	if report.Err() != nil || len(errs) > 0 {
		errs = append(errs, found) // names the tasks
	}
	return errors.Join(errs...)
}

// awaitEmpty waits until at most the given number of tasks is stored, and returns how
// many are.
func (r *harness) awaitEmpty(most int64) (stored int64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	_ = fleet.Await(ctx, func() bool {
		stored = 0
		for _, t := range r.status().Topics {
			stored += t.Pending
		}
		return stored <= most
	})
	return stored
}

// quiet waits until nothing has arrived for a second.
func (r *harness) quiet() {
	for before := -1; before != r.recorder.Ledger.Count(); {
		before = r.recorder.Ledger.Count()
		r.lasts(time.Second)
	}
}

// row is the result of one fault.
type row struct {
	fault  string
	report fleet.Report
	gap    time.Duration
	stored int
	failed int
}

// table holds the rows of all tests that ran.
type table struct {
	mu   sync.Mutex
	rows []row
}

var results table

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

// publish prints the table, and writes it into docs/faults.md with -update.
func (t *table) publish(passed bool) error {
	if len(t.rows) == 0 {
		return nil
	}
	slices.SortFunc(t.rows, func(a, b row) int { return strings.Compare(a.fault, b.fault) })
	t.print()
	if !*check.Update {
		return nil
	}
	if !passed {
		return errors.New("docs/faults.md is not written: some tests failed")
	}
	return t.write(filepath.Join("..", "..", "docs", "faults.md"))
}

func (t *table) print() {
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\tpromised\tdelivered\tlost\trepeated\tunexplained\tearly\tleft\tlongest gap\tp99 late\t")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", r.fault, r.report.Promised, r.report.Delivered,
			r.report.Lost,
			r.report.Duplicated, r.report.Unmarked, r.report.Early, r.stored, round(r.gap), round(r.report.Lateness.At(0.99)))
	}
	_ = w.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// tableEnds is the line after a table. The line before the table names the target.
const tableEnds = "<!-- end of the table of faults -->"

func (t *table) write(path string) error {
	tableBegins := fmt.Sprintf("<!-- the table of faults, written by make %s UPDATE=1 -->", *target)
	page, err := os.ReadFile(path) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the table of faults", path)
	}
	var b strings.Builder
	b.WriteString("\n| fault | promised | delivered | lost | repeats | early | longest gap " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", r.fault, r.report.Promised, r.report.Delivered,
			r.report.Lost,
			r.report.Duplicated, r.report.Early, round(r.gap))
	}
	return os.WriteFile(path, []byte(before+tableBegins+b.String()+tableEnds+after), 0o644) //nolint:gosec // a page of the docs
}
