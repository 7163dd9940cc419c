//go:build race

package main

// raceEnabled says that this test binary, and so the command, looks for races.
const raceEnabled = true
