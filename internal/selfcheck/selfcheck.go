// Package selfcheck repeats checks of what a scanner relies on: that Redis keeps what it
// acknowledges, has the fleet's data and a right clock, and that certificates last. Each check
// blocks nothing. It logs what changes, and says what is wrong as problems.
package selfcheck

import "github.com/duefleet/duefleet/internal/problem"

// one returns what a check found; nil if that is nothing.
func one(found *problem.Problem) []problem.Problem {
	if found == nil {
		return nil
	}
	return []problem.Problem{*found}
}
