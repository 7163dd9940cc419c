// Package model explores the protocol for changing M exhaustively in a small scope. The
// scope is one or two tasks, up to three producers, two movers and two scanners. The
// search tries every interleaving of their scripts, crashes, stalls, lost replies and
// failovers.
//
// The package is a second description of the scripts in internal/shard, the callers in
// producer, and the mover in internal/scanner. Each script is one atomic step. If those
// packages change, change this one too.
//
// The search is breadth first, so the trace of a broken promise is a shortest one.
//
// The model has no batches, no payloads and no clock. Instead of time passing, these
// things may happen at any moment:
//   - A version becomes due at any moment, except while a mover holds it under a valid
//     lease.
//   - A lease expires at any moment if its owner is dead or may stall.
//   - A caller may use any placement that was ever in force, even after a newer one.
//   - A step of another task's traffic shows a placement to a shard.
package model
