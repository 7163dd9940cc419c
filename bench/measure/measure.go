// Package measure has the measures of the benchmarks. A measure runs duefleet and
// something to compare it with, in the same run. That is a raw limit, such as a bare
// publisher, or a peer: another system for the same job.
package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

// duefleet is the name of duefleet as a subject, in tables and goals.
const duefleet = "duefleet"

// Measure is one measure.
type Measure struct {
	// Name is the name for -only, Title a description in one line.
	Name, Title string
	// Goals are limits for the results; empty for a measure that only compares.
	Goals []report.Goal
	// Notes are for readers of the results.
	Notes []string
	// Takes is roughly how long a run takes on two cores, for the estimate of the
	// remaining time.
	Takes time.Duration
	// Once means one run unless -runs is given. That is enough if the rows of a measure
	// are only compared with each other, or differ widely.
	Once bool
	// Redis holds additional arguments for the run's redis-server.
	Redis []string
	// Run executes one run.
	Run func(ctx context.Context, r *harness.Run, s *Results) error
	// Charts are drawn from its sheet; nil: none.
	Charts []report.Chart
}

// Results collects the values of one run.
type Results struct {
	Values []report.Value
	Notes  []string
}

// Add adds one value.
func (s *Results) Add(subject, name string, value float64) {
	s.Values = append(s.Values, report.Value{Subject: subject, Name: name, Value: value})
}

// Note adds a remark on this run. Equal remarks count once.
func (s *Results) Note(text string) { s.Notes = append(s.Notes, text) }

// All returns every measure, in the order of docs/benchmarks.md.
func All() []Measure {
	return []Measure{
		lateness(), latenessShort(), lateness5000(), sweep(),
		drain(harness.Classic,
			report.Goal{Subject: duefleet, Name: perSecond, Over: bareSame, AtLeast: 0.95},
			report.Goal{Subject: duefleet, Name: perSecond, Over: bareNaked, AtLeast: 0.85}),
		drain(harness.Quorum, report.Goal{Subject: duefleet, Name: perSecond, Over: bareSame, AtLeast: 0.9}),
		scheduleMany(), scheduleOne(), httpMany(), httpOne(), intake(), intakeMixed(), intakeLateness(), intakeMemory(),
		memory(), pending(), idle(), asleep(1000), asleep(10_000),
		instant(), inFlight(), rate(), topics(), takeover(),
		peersMeasure(), scale(),
	}
}
