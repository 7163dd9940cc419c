package model

// scope is what one exploration covers.
type scope struct {
	// path lists the placements in the order they come into force.
	path path
	// homes is the shard of each task under M = 1, 2, 3. Defaults to one task
	// with another shard under each.
	homes [][3]uint8
	// programs of the producers, separated by ";": operations S(chedule),
	// C(ancel), G(et), A (schedule if absent) and R(eschedule), each with the
	// number of its task.
	programs string
	// movers and scanners. Default to 2 and 1.
	movers, scanners int
	// quiet leaves out the traffic of other tasks.
	quiet bool
	// crash, stall: where an actor may die, or sleep past its lease.
	crash, stall points
	// lost: scripts that may be carried out while their caller hears nothing and
	// sends them again.
	lost scripts
	// delayed: a copy of put, delete or reschedule may lie in a socket and be
	// carried out later.
	delayed bool
	// late: an import may arrive past the export's deadline, though its lease holds.
	late bool
	// failover: one shard falls back to its replica.
	failover bool
	// falls: the placement key falls back to a copy of any age.
	falls bool
	// restart: one shard's server restarts once, with what it holds.
	restart bool
	// park: scanners may park what they claimed.
	park bool
	// strict: an operation whose caller died must not take effect on operations
	// begun after that.
	strict bool
	// liveness: from every state that is reached, healthy steps alone must end
	// the change.
	liveness bool
	// rules that are other than the project's.
	rules rules
	// promises to check.
	promises promises
}

type set uint64

// points are where an actor may die or sleep.
type points = set

const (
	beforeOld     points = 1 << iota // a producer, before its script at the old shard
	beforeNew                        // before its script at the new one
	beforeClosing                    // before its closing delete at the old one
	exported                         // a mover, with an export
	imported                         // before it settles
	claimed                          // a scanner, before it publishes
	published                        // before it settles
	everywhere    points = 1<<iota - 1
)

// scripts whose replies may be lost.
type scripts = set

const (
	lostPut scripts = 1 << iota // put and reschedule
	lostDelete
	lostExport
	lostImport
	lostClaim
	lostAll scripts = 1<<iota - 1
)

// rules that can be left out or varied. None of them: the project's protocol.
type rules = set

const (
	oneEpoch      rules = 1 << iota // a change ends under the epoch it began with
	uncheckedRead                   // read answers whatever epoch asks
	startOver                       // MOVED at the closing delete starts the operation over
	noTouch                         // Schedule does not show the old shard the placement first
	knownFence                      // it may leave that out when the old shard is known to have seen the epoch
	newFirst                        // Cancel deletes at the new shard first
	noHandled                       // import skips only what is there
	noFence                         // nothing is ever MOVED
	ignoreLeased                    // what is leased does not count as misplaced
	newRange                        // only the shards of the new M must be clean
	settleChecked                   // a scanner's settle is refused for its epoch
	exportDue                       // movers export what is due, too, and clocks are arbitrary
	keepLapsed                      // export leaves tasks alone whose lease ran out
	noGiveBack                      // after MOVED or LATE the mover lets its export lapse
	noDeadline                      // import does not refuse an export that ran out
	importForgets                   // import answers LATE past the deadline, though the task is among the handled IDs
	noOp                            // a record does not say which operation wrote it
	noPrior                         // an export that ran out is judged by its due time, not by its score from before
	noOutlast                       // a caller repeats a script while a copy of it may be carried out yet
	passes                          // movers look by passes instead of by one script
	noCompare                       // a pass is advanced from wherever a mover believes it stands
	noDirty                         // a pass does not note what it met
	noAnew                          // a pass goes on with its cursor after a restart
	renumbered                      // whoever is hired again numbers requests from the start, and is answered with an older batch
	byCount                         // what was asked for counts as moved when as much was
	waits                           // callers and movers wait for the replica
	noWaitImport                    // ... but not after import
	noWaitLook                      // ... nor after look
	noWaitFence                     // ... nor after fence
	equalAccepted                   // another placement of the same epoch is let through
	knownByEpoch                    // the memory of fences doesn't tell placements of one epoch apart
	untied                          // shards that were found clean under another placement count, unless a script dropped them
	readByEpoch                     // read answers another placement of the same epoch
)

// draft is the protocol before it was explored.
const draft = oneEpoch | uncheckedRead | startOver | noTouch | newFirst | noDeadline | noOp | noPrior | keepLapsed | noGiveBack
