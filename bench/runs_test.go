package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/bench/measure"
	"github.com/duefleet/duefleet/bench/report"
)

// pass lets time pass for a plan by moving its start times back, since the bubble's clock
// stands still.
func (p *plan) pass(d time.Duration) {
	p.started, p.begun = p.started.Add(-d), p.begun.Add(-d)
}

// shares returns a measure with the given shares of other processes. A run takes a minute
// of the plan's time, and its value is its number.
func shares(p *plan, runs *int, parts ...float64) func(context.Context, measure.Measure) (measure.Results, float64,
	error) {
	return func(context.Context, measure.Measure) (results measure.Results, share float64, err error) {
		p.pass(time.Minute)
		share = parts[*runs]
		*runs++
		results.Add("duefleet", "run", float64(*runs))
		return results, share, nil
	}
}

func TestADisturbedRunIsMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		parts []float64
		quick bool
		spent time.Duration // before the first run
		runs  int
		noted bool
	}{
		"nothing disturbs it": {parts: []float64{0.05}, runs: 1},
		"the first run":       {parts: []float64{0.06, 0.01}, runs: 2},
		"two runs":            {parts: []float64{0.06, 0.9, 0}, runs: 3},
		"all runs":            {parts: []float64{0.06, 0.06, 0.06}, runs: 3, noted: true},
		"no time for repeats": {parts: []float64{0.06}, spent: timeLimit - time.Minute, runs: 1, noted: true},
		"one more run":        {parts: []float64{0.06, 0.06}, spent: timeLimit - 150*time.Second, runs: 2, noted: true},
		"quick":               {parts: []float64{0.9}, quick: true, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				m := measure.Measure{Takes: time.Minute}
				p := newPlan([]measure.Measure{m}, options{runs: 1})
				all := &campaign{plan: p, once: shares(p, &runs, c.parts...), quick: c.quick}
				p.pass(c.spent)
				results, share, err := all.undisturbed(t.Context(), m)
				if runs != c.runs || err != nil {
					t.Fatalf("%d runs, want %d: %v", runs, c.runs, err)
				}
				if noted := len(results.Notes) > 0; noted != c.noted || share != c.parts[runs-1] ||
					results.Values[0].Value != float64(runs) {
					t.Errorf("the last run counts, noted %v: got %v and %+v", c.noted, share, results)
				}
			})
		})
	}
}

func TestAFailedMeasureKeepsItsRunsAndIsNotMadeAgain(t *testing.T) {
	runs := 0
	c := &campaign{plan: newPlan(nil, options{}), once: func(context.Context, measure.Measure) (results measure.Results,
		share float64, err error) {
		runs++
		if runs == 2 {
			return results, 0.9, errors.New("no room")
		}
		results.Add("duefleet", "tasks/s", 7)
		return results, 0.01, nil
	}}
	sheet, err := c.measure(t.Context(), measure.Measure{Name: "drain",
		Goals: []report.Goal{{Subject: "duefleet", Name: "tasks/s", AtLeast: 5}}}, 3)
	if err == nil || runs != 2 || sheet.Runs != 1 || len(sheet.Notes) != 1 || len(sheet.OtherLoad) != 1 ||
		!sheet.Verdicts[0].Kept {
		t.Errorf("after %d runs: %v, %+v", runs, err, sheet)
	}
}

func TestTheTimeLeftFollowsWhatRunsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := measure.Measure{Name: "a", Takes: time.Minute}
		b := measure.Measure{Name: "b", Takes: 10 * time.Minute, Once: true}
		var left []time.Duration
		p := newPlan([]measure.Measure{a, b}, options{runs: 3})
		p.say = func(_ string, d time.Duration) { left = append(left, d) }
		p.begin("a")
		p.pass(2 * time.Minute)
		p.end(a)
		p.begin("a")
		p.end(a)
		p.skip(a, 1)
		p.begin("b")
		if left[0] != 13*time.Minute || left[1] != 24*time.Minute || left[2] != 10*time.Minute {
			t.Errorf("left: %v", left)
		}
	})
}

func TestAllOfItFitsInTheTime(t *testing.T) {
	if p := newPlan(measure.All(), options{runs: 3}); p.left() > timeLimit {
		t.Errorf("the measures say that they take %s together, of %s", p.left(), timeLimit)
	}
}

func TestWhatRunsOnceRunsAsOftenAsIsAskedFor(t *testing.T) {
	once, others := measure.Measure{Once: true}, measure.Measure{}
	for _, o := range []options{{runs: 3}, {runs: 3, asked: true}} {
		want := 1
		if o.asked {
			want = 3
		}
		if runsOf(once, o) != want || runsOf(others, o) != 3 {
			t.Errorf("%+v: %d runs of what runs once, %d of others", o, runsOf(once, o), runsOf(others, o))
		}
	}
}
