// Package fleet runs whole fleets from outside: it builds the two programs,
// starts scanners as processes, consumes what they publish, and keeps a ledger
// of what was promised against what arrived. The tests of the whole fleet and
// the demo are made of it.
//
// It knows duefleet by what users hold on to alone: the programs' flags and
// exit codes, the configuration, the messages and the public producer library.
package fleet
