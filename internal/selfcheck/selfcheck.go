// Package selfcheck repeats checks of what a scanner relies on. Redis must keep what it
// acknowledges, have the fleet's data and tell the right time, and certificates must last. No
// check blocks anything. Each logs what changes, and says what is wrong as problems.
package selfcheck

import "github.com/duefleet/duefleet/internal/problem"

// one returns what a check found; nil if that is nothing.
func one(found *problem.Problem) []problem.Problem {
	if found == nil {
		return nil
	}
	return []problem.Problem{*found}
}
