//go:build race

package e2e_test

// raceEnabled says whether the programs are built with the race detector, as the tests
// are.
const raceEnabled = true
