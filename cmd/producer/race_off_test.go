//go:build !race

package main

// raceEnabled says whether this test binary, and so the command, looks for races.
const raceEnabled = false
