// Package report collects results, compares them with goals, and writes them as Markdown,
// JSON and charts. A sheet has the results of one measure.
package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Value is one figure of one run.
type Value struct {
	// Subject is the measured system: duefleet, a raw limit, or a peer.
	Subject string
	// Name is the measured quantity with its unit, as in "p99 ms".
	Name string
	// Value is the number.
	Value float64
}

// Figure is one quantity of one subject, measured in every run.
type Figure struct {
	Subject string    `json:"subject"`
	Name    string    `json:"name"`
	Median  float64   `json:"median"`
	Runs    []float64 `json:"runs"`
}

// Goal is a limit for a figure. If Over names another subject, the goal compares the
// figure with the same figure of that subject, run by run. AtMost and AtLeast then limit
// the ratio of the two, and AtMostMore their difference.
type Goal struct {
	Subject    string  `json:"subject"`
	Name       string  `json:"name"`
	Over       string  `json:"over,omitempty"`
	AtMost     float64 `json:"at_most,omitempty"`
	AtLeast    float64 `json:"at_least,omitempty"`
	AtMostMore float64 `json:"at_most_more,omitempty"`
	// None requires zero in every run.
	None bool `json:"none,omitempty"`
}

// Verdict is the result of a goal.
type Verdict struct {
	Goal
	// Measured is false if a figure is missing. Got and Kept then mean nothing.
	Measured bool `json:"measured"`
	// Got is the median over all runs of what the goal limits; with None the largest value.
	Got float64 `json:"got"`
	// Kept reports whether Got keeps to the goal.
	Kept bool `json:"kept"`
}

// Sheet holds the results of one measure.
type Sheet struct {
	Measure  string    `json:"measure"`
	Title    string    `json:"title"`
	Figures  []Figure  `json:"figures"`
	Verdicts []Verdict `json:"verdicts"`
	// Notes explain the figures, and say what could not be measured.
	Notes []string `json:"notes,omitempty"`
	// Runs is the number of runs for the medians.
	Runs int `json:"runs"`
	// Quick is true for small sizes, which only show that the measure works.
	Quick bool `json:"quick"`
	// OtherLoad is the other processes' share of the machine's CPU time in each run, in
	// %.
	OtherLoad []float64 `json:"other_load_percent,omitempty"`
	// Measured is when the last run ended.
	Measured time.Time `json:"measured"`
	// Machine is where that was, if it isn't the report's.
	Machine *Machine `json:"machine,omitempty"`
}

// Report holds all sheets, and describes the machine and the programs that were measured.
type Report struct {
	Machine  Machine  `json:"machine"`
	Versions []string `json:"versions"`
	Sheets   []Sheet  `json:"sheets"`
}

// Collect makes the figures from the runs' values, and checks the goals.
func (s *Sheet) Collect(runs [][]Value, goals []Goal) {
	for _, values := range runs {
		for _, v := range values {
			f := s.find(v.Subject, v.Name)
			if f == nil {
				s.Figures = append(s.Figures, Figure{Subject: v.Subject, Name: v.Name})
				f = &s.Figures[len(s.Figures)-1]
			}
			f.Runs = append(f.Runs, v.Value)
		}
	}
	for i := range s.Figures {
		s.Figures[i].Median = median(s.Figures[i].Runs)
	}
	for _, g := range goals {
		s.Verdicts = append(s.Verdicts, s.judge(g))
	}
}

// find returns the figure with a name, or nil.
func (s *Sheet) find(subject, name string) *Figure {
	for i, f := range s.Figures {
		if f.Subject == subject && f.Name == name {
			return &s.Figures[i]
		}
	}
	return nil
}

func (s *Sheet) judge(g Goal) Verdict {
	v := Verdict{Goal: g}
	f := s.find(g.Subject, g.Name)
	if f == nil {
		return v
	}
	got := f.Runs
	if g.Over != "" {
		over := s.find(g.Over, g.Name)
		if over == nil || len(over.Runs) != len(f.Runs) {
			return v
		}
		got = g.against(f.Runs, over.Runs)
	}
	ratio := median(got)
	if math.IsInf(ratio, 0) || math.IsNaN(ratio) { // over 0, which is no measure
		return v
	}
	v.Measured, v.Got = true, ratio
	if g.None {
		v.Got = slices.Max(got)
		v.Kept = v.Got == 0
		return v
	}
	if g.AtMostMore > 0 {
		v.Kept = v.Got <= g.AtMostMore
		return v
	}
	v.Kept = (g.AtMost == 0 || v.Got <= g.AtMost) && (g.AtLeast == 0 || v.Got >= g.AtLeast)
	return v
}

// against returns the ratio, or the difference, of two figures in each run.
func (g Goal) against(of, over []float64) []float64 {
	r := make([]float64, len(of))
	for i := range of {
		if g.AtMostMore > 0 {
			r[i] = of[i] - over[i]
		} else {
			r[i] = of[i] / over[i]
		}
	}
	return r
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// String returns the goal in words.
func (g Goal) String() string {
	of := g.Subject + ": " + g.Name
	if g.Over != "" {
		of = fmt.Sprintf("%s: %s divided by %s", g.Subject, g.Name, g.Over)
	}
	switch {
	case g.None:
		return of + " = 0"
	case g.AtMostMore > 0:
		return fmt.Sprintf("%s: %s <= %s + %g", g.Subject, g.Name, g.Over, g.AtMostMore)
	case g.AtMost > 0 && g.AtLeast > 0:
		return fmt.Sprintf("%s %g to %g", of, g.AtLeast, g.AtMost)
	case g.AtMost > 0:
		return fmt.Sprintf("%s <= %g", of, g.AtMost)
	}
	return fmt.Sprintf("%s >= %g", of, g.AtLeast)
}

// Number formats a number with three significant digits, or without a fraction from 100
// on.
func Number(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f >= 100 || f <= -100:
		return grouped(strconv.FormatFloat(f, 'f', 0, 64))
	case f >= 10 || f <= -10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// grouped puts a comma between thousands.
func grouped(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
