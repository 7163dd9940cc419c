// Package model explores the protocol for changing M exhaustively in a small
// scope: every interleaving of scripts, crashes, stalls, lost replies and
// failovers of one or two tasks, up to three producers, two movers and two
// scanners. The scripts of internal/shard, the callers in producer and the mover
// in internal/scanner are told again here, each script as one atomic step; when
// those change, this changes with them.
//
// The search is breadth first, so the trace of a broken promise is a shortest
// one.
//
// What is left out: batches and payloads. Time is whatever may happen next: a
// version becomes due at any moment, but not under a mover's lease that has not
// run out; a lease runs out at any moment if its owner is dead or may stall. Any
// caller may use any placement that ever was in force, even after a newer one.
// The traffic of other tasks is a step that shows a shard a placement.
package model
