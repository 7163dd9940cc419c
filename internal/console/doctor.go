package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/doctor"
)

// examiner examines the fleet for everybody. Its methods are safe for concurrent use.
type examiner struct {
	examine func(ctx context.Context) []doctor.Finding
	// after is called when an examination has ended.
	after func()

	mu    sync.Mutex
	state examination
}

// examination is the last examination.
type examination struct {
	// Running is true while the next one runs. For names the user who asked for it.
	Running bool
	For     string
	// At is when the last one ended, and By who asked for it; zero if there was none.
	At       time.Time
	By       string
	Findings []doctor.Finding
}

// claim notes who asks for an examination. It returns false if one runs.
func (e *examiner) claim(who string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Running {
		return false
	}
	e.state.Running, e.state.For = true, who
	return true
}

// run examines the fleet. The caller has claimed it.
func (e *examiner) run(ctx context.Context) {
	findings := e.examine(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = examination{At: time.Now(), By: e.state.For, Findings: findings}
	e.after()
}

// last returns the last examination.
func (e *examiner) last() examination {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// doctorView has everything that the page of the doctor shows.
type doctorView struct {
	examination
	// Rows has the findings, those that need action first; Failed counts what is wrong.
	Rows   []findingRow
	Failed int
	// Unknown is true if the fleet couldn't be asked.
	Unknown bool
}

// findingRow is one finding.
type findingRow struct {
	doctor.Finding
	// Class colours the state.
	Class string
}

// classes returns how states are coloured, and their order.
func classes() (states []doctor.State, classes []string) {
	return []doctor.State{doctor.Fail, doctor.Warn, doctor.NotChecked, doctor.Info, doctor.OK},
		[]string{"broken", "degraded", "unknown", "notice", "healthy"}
}

func (c *Console) doctor(context.Context, *http.Request, reading) (any, error) {
	v := doctorView{examination: c.examiner.last()}
	v.Failed, v.Unknown = doctor.Failed(v.Findings), doctor.FleetUnknown(v.Findings)
	states, names := classes()
	for _, f := range doctor.Grouped(v.Findings) {
		v.Rows = append(v.Rows, findingRow{f, names[max(slices.Index(states, f.State), 0)]})
	}
	slices.SortStableFunc(v.Rows, func(a, b findingRow) int {
		return cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State))
	})
	return v, nil
}

// examineAgain starts an examination, unless one runs.
func (c *Console) examineAgain(w http.ResponseWriter, r *http.Request) {
	if c.examiner.claim(whoOf(r).Name) {
		select {
		case c.changes.begin <- c.examiner.run:
		case <-r.Context().Done():
			c.fail(w, r, errors.New("the console stops"))
			return
		}
	}
	http.Redirect(w, r, "/doctor", http.StatusSeeOther)
}
