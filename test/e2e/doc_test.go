// Package e2e_test tests whole fleets from outside, through their stable interfaces: the
// programs' flags, output and exit codes, the configuration, the messages and the
// metrics. The servers are real, and the scanners are processes.
package e2e_test
