//go:build race

package e2e_test

// raceEnabled: tests with the race detector build the programs with it too.
const raceEnabled = true
