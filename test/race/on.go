//go:build race

// Package race says whether a test runs with the race detector.
package race

// Detects reports whether this process detects races.
const Detects = true
