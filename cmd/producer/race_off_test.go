//go:build !race

package main

// raceEnabled reports whether this test binary and the command detect races.
const raceEnabled = false
