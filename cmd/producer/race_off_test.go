//go:build !race

package main

// raceEnabled reports whether this test binary, and so the command, looks for races.
const raceEnabled = false
