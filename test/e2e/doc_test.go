// Package e2e_test tries whole fleets from outside, by what users hold on to:
// the programs' flags, output and exit codes, the configuration, the messages
// and the metrics. The servers are real ones, the scanners are processes.
package e2e_test
