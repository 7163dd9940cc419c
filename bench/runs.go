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

const (
	// disturbed is the share of the machine's CPU time above which other processes
	// disturb a run.
	disturbed = 0.05
	// tries is how often a run is made at most until it isn't disturbed.
	tries = 3
	// timeLimit is how long all measures together may take. A disturbed run isn't
	// repeated if that would exceed it.
	timeLimit = 28 * time.Minute
)

// campaign is everything that one call of this program measures.
type campaign struct {
	// once executes one run of a measure. It also returns the share of the machine's CPU
	// time that other processes used.
	once  func(context.Context, measure.Measure) (measure.Results, float64, error)
	plan  *plan
	quick bool
}

// measureAll runs every measure. If one fails, the others still run; its sheet has the
// error and the results of its earlier runs.
func measureAll(ctx context.Context, b *harness.Bench, o options, measures []measure.Measure) ([]report.Sheet, error) {
	c := &campaign{plan: newPlan(measures, o), quick: o.quick}
	c.once = func(ctx context.Context, m measure.Measure) (measure.Results, float64, error) {
		return watched(ctx, b, m)
	}
	var sheets []report.Sheet
	var errs []error
	for _, m := range measures {
		sheet, err := c.measure(ctx, m, runsOf(m, o))
		if ctx.Err() != nil {
			return sheets, errors.Join(append(errs, errors.New("interrupted"))...)
		}
		errs = append(errs, err)
		sheets = append(sheets, sheet)
	}
	return sheets, errors.Join(errs...)
}

// runsOf returns the number of runs of a measure.
func runsOf(m measure.Measure, o options) int {
	if m.Once && !o.asked {
		return 1
	}
	return o.runs
}

// measure runs a measure n times and returns its report, with a note about each run that
// failed.
func (c *campaign) measure(ctx context.Context, m measure.Measure, n int) (report.Sheet, error) {
	sheet := report.Sheet{Measure: m.Name, Title: m.Title, Notes: m.Notes, Quick: c.quick}
	var runs [][]report.Value
	var failed error
	for i := range n {
		c.plan.begin(fmt.Sprintf("%s, run %d of %d", m.Name, i+1, n))
		results, share, err := c.undisturbed(ctx, m)
		c.plan.end(m)
		sheet.Notes = appendNew(sheet.Notes, results.Notes...)
		if err != nil {
			failed = fmt.Errorf("%s, run %d: %w", m.Name, i+1, err)
			fmt.Fprintln(os.Stderr, "bench:", failed)
			sheet.Notes = append(sheet.Notes, "Not measured in full: "+failed.Error())
			c.plan.skip(m, n-i-1)
			break
		}
		runs = append(runs, results.Values)
		sheet.OtherLoad = append(sheet.OtherLoad, 100*share)
	}
	sheet.Runs, sheet.Measured = len(runs), time.Now()
	sheet.Collect(runs, m.Goals)
	return sheet, failed
}

// undisturbed executes one run, and repeats it if other processes disturbed it. The last
// run counts. share is the others' share of the machine during that run.
func (c *campaign) undisturbed(ctx context.Context, m measure.Measure) (results measure.Results, share float64,
	err error) {
	for try := 1; ; try++ {
		c.plan.begun = time.Now() // the estimate uses only the run that counts
		results, share, err = c.once(ctx, m)
		if err != nil || c.quick || share <= disturbed {
			return results, share, err
		}
		if try < tries && c.plan.room() {
			fmt.Fprintf(os.Stderr, "bench: %s: other processes took %.0f%% of the machine: the run is repeated\n", m.Name,
				100*share)
			continue
		}
		results.Note(fmt.Sprintf("Other processes took more than %.0f%% of the machine's processor time in some run: its "+
			"figures say less", 100*disturbed))
		return results, share, nil
	}
}

// watched executes one run with an empty Redis, and measures the CPU share of other
// processes meanwhile.
func watched(ctx context.Context, b *harness.Bench, m measure.Measure) (results measure.Results, share float64,
	err error) {
	others, err := harness.WatchOthers()
	if err != nil {
		return results, 0, err
	}
	r, err := b.NewRun(ctx, m.Redis...)
	if err != nil {
		return results, 0, err
	}
	err = errors.Join(m.Run(ctx, r, &results), r.Close())
	if err != nil {
		return results, 0, err
	}
	share, err = others.Share()
	return results, share, err
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

// plan tracks the progress of all runs and prints it on stderr.
type plan struct {
	say func(what string, left time.Duration)
	// ahead is the sum of Takes of the runs that haven't ended.
	ahead time.Duration
	// slower is how much longer the ended runs took than the sum of their Takes: spent /
	// estimated. It is 1 before the first run has ended.
	slower float64
	// spent is the time that the ended runs took, and estimated the sum of their Takes.
	spent, estimated time.Duration
	started, begun   time.Time
}

func newPlan(measures []measure.Measure, o options) *plan {
	p := &plan{slower: 1, started: time.Now()}
	if o.quick {
		const shorter = 0.25 // waiting for servers and due times doesn't shrink to a tenth
		p.slower = shorter
	}
	total := 0
	for _, m := range measures {
		p.ahead += m.Takes * time.Duration(runsOf(m, o))
		total += runsOf(m, o)
	}
	p.say = progress(total)
	return p
}

// begin announces a run.
func (p *plan) begin(what string) {
	p.begun = time.Now()
	p.say(what, p.left())
}

// left returns the estimated time for all runs that haven't ended, the current one
// included.
func (p *plan) left() time.Duration { return time.Duration(float64(p.ahead) * p.slower) }

// room reports whether the current run can be repeated within the time for everything.
func (p *plan) room() bool { return time.Since(p.started)+p.left() <= timeLimit }

// end records that the current run has ended.
func (p *plan) end(m measure.Measure) {
	p.ahead -= m.Takes
	p.estimated += m.Takes
	p.spent += time.Since(p.begun)
	if p.estimated > 0 {
		p.slower = float64(p.spent) / float64(p.estimated)
	}
}

// skip removes runs from the plan.
func (p *plan) skip(m measure.Measure, runs int) { p.ahead -= m.Takes * time.Duration(runs) }

// progress shows the current run and the remaining time: as a bar on a terminal,
// otherwise one line for each run.
func progress(total int) func(what string, left time.Duration) {
	minutes := func(left time.Duration) string { return fmt.Sprintf("about %.0f min left", max(1, left.Minutes())) }
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(what string, left time.Duration) {
			fmt.Fprintf(os.Stderr, "%s %s, %s\n", time.Now().Format(time.TimeOnly), what, minutes(left))
		}
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	started := false
	return func(what string, left time.Duration) {
		if started {
			_ = bar.Add(1)
		}
		started = true
		bar.Describe(what + ", " + minutes(left))
	}
}
