package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/measure"
	"github.com/duefleet/duefleet/bench/report"
)

// measureAll runs every measure. One that fails takes no other with it: its
// sheet says so, with what the runs before gave.
func measureAll(ctx context.Context, b *harness.Bench, o options, measures []measure.Measure) ([]report.Sheet, error) {
	show := progress(len(measures) * o.runs)
	var sheets []report.Sheet
	var errs []error
	for _, m := range measures {
		sheet := report.Sheet{Measure: m.Name, Title: m.Title, Notes: m.Notes, Quick: o.quick}
		var runs [][]report.Value
		for n := range o.runs {
			show(fmt.Sprintf("%s, run %d of %d", m.Name, n+1, o.runs))
			results, err := once(ctx, b, m)
			sheet.Notes = appendNew(sheet.Notes, results.Notes...)
			if ctx.Err() != nil {
				return sheets, errors.Join(append(errs, errors.New("interrupted"))...)
			}
			if err != nil {
				err = fmt.Errorf("%s, run %d: %w", m.Name, n+1, err)
				fmt.Fprintln(os.Stderr, "bench:", err)
				sheet.Notes = append(sheet.Notes, "Not measured in full: "+err.Error())
				errs = append(errs, err)
				break
			}
			runs = append(runs, results.Values)
		}
		sheet.Runs, sheet.Measured = len(runs), time.Now()
		sheet.Collect(runs, m.Goals)
		sheets = append(sheets, sheet)
	}
	return sheets, errors.Join(errs...)
}

// once is one run on an empty Redis.
func once(ctx context.Context, b *harness.Bench, m measure.Measure) (results measure.Results, err error) {
	r, err := b.NewRun(ctx, m.Redis...)
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = m.Run(ctx, r, &results)
	return results, err
}

func appendNew(notes []string, more ...string) []string {
	notes = slices.Clone(notes)
	for _, n := range more {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return notes
}

// progress shows what is running: a bar on a terminal, else a line each.
func progress(total int) func(what string) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(what string) { fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), what) }
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	started := false
	return func(what string) {
		if started {
			_ = bar.Add(1)
		}
		started = true
		bar.Describe(what)
	}
}
