// Command bench measures duefleet against raw limits and against its peers, on servers
// that it starts itself.
//
//	make bench
//	make bench-quick
//	bin/bench [-only NAME,...] [-quick] [-runs 3] [-o markdown|json|both] [-update] [-list]
//
// Run the last command in the root of the repository, after building bin/scanner. With
// -update it writes docs/benchmarks.md, its charts and bench/results.json. The results of
// measures that were not run stay as they are.
//
// Exit codes: 0: everything was measured; 1: something failed; 2: wrong usage. A missed
// goal is only shown in the tables; it doesn't change the exit code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/measure"
	"github.com/duefleet/duefleet/bench/peers"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the flags.
type options struct {
	only   string
	quick  bool
	runs   int
	asked  bool // -runs was given
	output string
	update bool
	list   bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "peer" { // package peers starts this program in this way
		if err := peers.Member(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(exitFailed)
		}
		return
	}
	var o options
	flag.StringVar(&o.only, "only", "", "names of measures, separated by commas; all by default")
	flag.BoolVar(&o.quick, "quick", false, "use a tenth of the sizes and one run, as a check that it works")
	flag.IntVar(&o.runs, "runs", 3, "number of runs for the medians (peers and scale: 1 by default)")
	flag.StringVar(&o.output, "o", outputBoth, "markdown, json, or both: one after the other")
	flag.BoolVar(&o.update, "update", false, "write docs/benchmarks.md, its charts and bench/results.json")
	flag.BoolVar(&o.list, "list", false, "list the measures")
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { o.asked = o.asked || f.Name == "runs" })
	if o.quick {
		o.runs = 1
	}
	if o.list {
		for _, m := range measure.All() {
			fmt.Printf("%-22s %s\n", m.Name, m.Title)
		}
		return
	}
	measures, err := choose(o.only)
	if err == nil && (flag.NArg() > 0 || o.runs < 1 || !slices.Contains(outputs(), o.output)) {
		err = errors.New("-runs must be 1 or more, -o markdown, json or both, and nothing else may be given")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, o, measures); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitFailed)
	}
}

// choose returns the measures with the given names, in their usual order.
func choose(only string) ([]measure.Measure, error) {
	all := measure.All()
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	var chosen []measure.Measure
	for _, m := range all {
		if i := slices.Index(names, m.Name); i >= 0 {
			chosen, names = append(chosen, m), slices.Delete(names, i, i+1)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("no measure %q; -list shows them", names[0])
	}
	return chosen, nil
}

// run runs the measures, and prints the results, even if some measures failed. With
// -update it writes them to the document, too.
func run(ctx context.Context, o options, measures []measure.Measure) (err error) {
	dir, err := workDir()
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "scanner")); err != nil {
		return fmt.Errorf("%w; run this in the root of the repository, after make build", err)
	}
	b, err := harness.Start(ctx, harness.Config{Dir: dir, Root: root, Quick: o.quick})
	if err != nil {
		return err
	}
	sheets, err := measureAll(ctx, b, o, measures)
	err = errors.Join(err, b.Stop())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: the logs are in", dir)
	} else {
		_ = os.RemoveAll(dir)
	}
	r := report.Report{Machine: report.ThisMachine(), Versions: report.Versions(context.WithoutCancel(ctx),
		filepath.Join(root, "bench"))}
	r.Merge(sheets, names(sheets))
	err = errors.Join(err, write(r, o.output))
	if o.update {
		err = errors.Join(err, update(root, r))
	}
	return err
}

func workDir() (string, error) {
	if err := os.MkdirAll(".dev", 0o750); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(".dev", "bench-")
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func names(sheets []report.Sheet) []string {
	var all []string
	for _, s := range sheets {
		all = append(all, s.Measure)
	}
	return all
}

// These are the values of -o.
const (
	outputMarkdown = "markdown"
	outputJSON     = "json"
	outputBoth     = "both"
)

func outputs() []string { return []string{outputMarkdown, outputJSON, outputBoth} }

func write(r report.Report, output string) error {
	var err error
	if output != outputJSON {
		err = r.Markdown(os.Stdout, nil)
	}
	if output != outputMarkdown {
		err = errors.Join(err, r.JSON(os.Stdout))
	}
	return err
}

// update writes the new results to the document and to results.json. It keeps the results
// of other measures, and the machine and the versions if there are others.
func update(root string, r report.Report) error {
	results := filepath.Join(root, "bench", "results.json")
	all, err := report.Read(results)
	if err != nil {
		return err
	}
	var order []string
	for _, m := range measure.All() {
		order = append(order, m.Name)
	}
	switch {
	case len(r.Sheets) == len(order):
		all.Machine, all.Versions = r.Machine, r.Versions
	case all.Machine != r.Machine:
		for i := range r.Sheets {
			r.Sheets[i].Machine = &r.Machine
		}
	}
	all.Merge(r.Sheets, order)
	if err := all.WriteJSON(results); err != nil {
		return err
	}
	charts, err := draw(filepath.Join(root, "docs"), all.Sheets)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := all.Markdown(&text, charts); err != nil {
		return err
	}
	return report.Replace(filepath.Join(root, "docs", "benchmarks.md"), text.String())
}

// draw writes the charts of all sheets, and returns their paths relative to the document.
func draw(docs string, sheets []report.Sheet) (map[string][]string, error) {
	const folder = "benchmarks"
	if err := os.MkdirAll(filepath.Join(docs, folder), 0o755); err != nil { //nolint:gosec // a folder for everybody
		return nil, err
	}
	charts := map[string][]string{}
	for _, m := range measure.All() {
		i := slices.IndexFunc(sheets, func(s report.Sheet) bool { return s.Measure == m.Name })
		if i < 0 {
			continue
		}
		for _, c := range m.Charts {
			file, err := c.Draw(sheets[i], filepath.Join(docs, folder))
			if err != nil {
				return nil, err
			}
			if file != "" {
				charts[m.Name] = append(charts[m.Name], folder+"/"+file)
			}
		}
	}
	return charts, nil
}
