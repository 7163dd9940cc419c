// Package measure holds what is measured, one measure a file. Every measure
// takes a raw limit or a peer into the same run, so that a figure never stands
// alone.
package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

// duefleet is the subject that goals are about.
const duefleet = "duefleet"

// Measure is one measure.
type Measure struct {
	// Name is what -only takes, and Title what it is in a line.
	Name, Title string
	// Goals of it; none where it only compares.
	Goals []report.Goal
	// Notes are for its reader.
	Notes []string
	// Takes is about how long a run of it takes on two cores, to say how much time
	// is left.
	Takes time.Duration
	// Once has it run once unless a number of runs is asked for: its rows are compared
	// with each other, or far apart.
	Once bool
	// Redis are arguments to its Redis beside the usual ones.
	Redis []string
	// Run is one run of it.
	Run func(ctx context.Context, r *harness.Run, s *Results) error
	// Charts are drawn of its sheet; nil: none.
	Charts []report.Chart
}

// Results takes the values of one run.
type Results struct {
	Values []report.Value
	Notes  []string
}

// Add takes one value.
func (s *Results) Add(subject, name string, value float64) {
	s.Values = append(s.Values, report.Value{Subject: subject, Name: name, Value: value})
}

// Note says something about this run; the same words twice are one note.
func (s *Results) Note(text string) { s.Notes = append(s.Notes, text) }

// All is every measure in the order of the document.
func All() []Measure {
	return []Measure{
		lateness(), latenessShort(), lateness5000(),
		drain(harness.Classic,
			report.Goal{Subject: duefleet, Name: perSecond, Over: bareSame, AtLeast: 0.95},
			report.Goal{Subject: duefleet, Name: perSecond, Over: bareNaked, AtLeast: 0.85}),
		drain(harness.Quorum, report.Goal{Subject: duefleet, Name: perSecond, Over: bareSame, AtLeast: 0.9}),
		scheduleMany(), scheduleOne(),
		memory(), pending(), idle(),
		instant(), inFlight(), rate(), topics(),
		peersMeasure(), scale(),
	}
}
