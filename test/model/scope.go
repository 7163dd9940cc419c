package model

// scope is the range of one exploration.
type scope struct {
	// path lists the placements in the order they come into force.
	path path
	// homes is the shard of each task under M = 1, 2, 3. By default task 0 moves with every
	// change, and task 1 never.
	homes [][3]uint8
	// programs are the producers' programs, separated by ";". The operations are
	// S(chedule), C(ancel), G(et), A (schedule if absent) and R(eschedule). Each is
	// followed by the number of its task.
	programs string
	// runs is how often each task recurs; by default it doesn't.
	runs uint8
	// movers and scanners default to 2 and 1.
	movers, scanners int
	// quiet leaves out the traffic of other tasks, which shows placements to shards.
	quiet bool
	// crash and stall are the points where an actor may die, or sleep past its lease.
	crash, stall points
	// lost are the scripts that may run without a reply, so that their caller sends them
	// again.
	lost scripts
	// delayed: a copy of put, delete or reschedule may wait in a socket and run after its
	// caller went on.
	delayed bool
	// late: an import may arrive after the export's deadline although its lease is valid.
	late bool
	// failover: one shard fails over to its replica, once.
	failover bool
	// falls: the placement key falls back to a copy of any age.
	falls bool
	// restart: one shard's server restarts once, with its data.
	restart bool
	// park: scanners may park claimed tasks.
	park bool
	// strict: an operation whose caller died must not affect operations that begin
	// afterwards.
	strict bool
	// liveness: from every reachable state, healthy steps alone must end the change.
	liveness bool
	// rules that differ from the project's protocol.
	rules rules
	// promises to check.
	promises promises
}

type set uint64

// points are moments when an actor may die or sleep.
type points = set

const (
	beforeOld     points = 1 << iota // a producer before its script at the old shard.
	beforeNew                        // before its script at the new one.
	beforeClosing                    // before its closing delete at the old one.
	exported                         // a mover that holds an export.
	imported                         // before it settles.
	claimed                          // a scanner before it publishes.
	published                        // before it settles.
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

// rules are omissions from the protocol, and variants of it. 0 is the project's protocol.
type rules = set

const (
	oneEpoch      rules = 1 << iota // a change ends under the epoch it began with.
	uncheckedRead                   // read answers at any epoch.
	startOver                       // MOVED at the closing delete restarts the operation.
	noTouch                         // Schedule doesn't first show the placement to the old shard.
	knownFence                      // Schedule may leave that out if the old shard is known to have seen the epoch.
	newFirst                        // Cancel deletes at the new shard first.
	noHandled                       // import skips only tasks that are already there.
	noFence                         // nothing is ever MOVED.
	ignoreLeased                    // leased tasks don't count as misplaced.
	newRange                        // only the shards of the new M must be clean.
	settleChecked                   // settle is refused if the scanner's epoch is old.
	exportDue                       // movers export due tasks too, and clocks are arbitrary.
	keepLapsed                      // export skips tasks with an expired lease.
	noGiveBack                      // after MOVED or LATE the mover lets its export expire.
	noDeadline                      // import accepts an expired export.
	importForgets                   // after the deadline import answers LATE even if the task is in the handled set.
	noOp                            // a record doesn't name the operation that wrote it.
	noPrior                         // an expired export is judged by its due time, not by its earlier score.
	noOutlast                       // a caller repeats a script while a copy of it may still run.
	passes                          // movers look with passes instead of one script.
	noCompare                       // a mover advances a pass from the position that it believes in.
	noDirty                         // a pass doesn't record that it met misplaced tasks.
	keepCursor                      // a pass keeps its cursor after a restart.
	// a restarted worker numbers its requests from the start, and gets an older batch as the
	// answer
	renumbered
	byCount       // a mover counts the moved tasks, and doesn't check that they are the requested ones.
	waits         // callers and movers wait for the replica.
	noWaitImport  // ... but not after import.
	noWaitLook    // ... nor after look.
	noWaitFence   // ... nor after fence.
	equalAccepted // another placement of the same epoch is accepted.
	knownByEpoch  // the memory of fences doesn't distinguish placements of one epoch.
	untied        // marks of clean shards count under any placement, unless a script removed them.
	tokenless     // settling a run makes the one after the stored run due, without a lease.
	readByEpoch   // read answers another placement of the same epoch.
)

// draft is the protocol before its first exploration.
const draft = oneEpoch | uncheckedRead | startOver | noTouch | newFirst | noDeadline |
	noOp | noPrior | keepLapsed | noGiveBack
