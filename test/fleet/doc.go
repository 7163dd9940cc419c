// Package fleet runs whole fleets from outside. It builds the two programs, starts
// scanners as processes, and consumes what they publish. A ledger compares what was
// promised with what arrived. The tests of whole fleets and the demo use it.
//
// It uses only the stable interfaces of duefleet: the programs' flags and exit codes, the
// configuration, the messages, and the public producer library.
package fleet
