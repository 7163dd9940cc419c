package model

const (
	maxShards     = 3
	maxTasks      = 2
	maxProducers  = 3
	maxMovers     = 2
	maxScanners   = 2
	maxOperations = 5
)

// state holds everything that the next step depends on. It has no pointers, so two states
// are equal if their bytes are. A version is the result of one operation. Sets of
// versions, tasks, shards and operations are bits.
type state struct {
	key
	copied     key   // a replica of the placement key, which the key may fall back to
	newest     uint8 // the newest placement that was ever in force
	due        uint8
	fired      uint8
	firedAgain uint8
	ran        [maxOperations + 1]uint8 // runs that were delivered, by version
	parked     uint8
	struck     uint8 // 1: the one failover, restart or fall of this exploration has happened
	copy       call  // the call that waits in a socket
	shards     [maxShards]shard
	replicas   [maxShards]shard
	producers  [maxProducers]producer
	movers     [maxMovers]mover
	scanners   [maxScanners]scanner
	operations [maxOperations]operation
}

// key holds the contents of the placement key.
type key struct {
	placement uint8 // the placement in force, by its index in the path
	clean     uint8 // shards
	cleanOf   uint8 // the placement under which they were found clean
}

// operation is the progress of one operation of a producer.
type operation struct {
	status       uint8
	after        uint8 // operations that had returned when it began
	afterCrashed uint8 // operations whose callers had died when it began
}

const (
	notBegun uint8 = iota
	running
	returned
	crashed  // its caller died, or got an error
	inEffect // answered, but without an effect of its own
)

// kind is the kind of an operation: S, C, G, A or R.
type kind byte

func (k kind) writes() bool { return k != 'G' }

// planned is one operation of a program. version is 0 if it writes nothing.
type planned struct {
	kind
	id, version uint8
}

func bit(n uint8) uint8 { return 1 << n }

func (s *state) each(do func(sh *shard)) {
	for i := range s.shards {
		do(&s.shards[i])
		do(&s.replicas[i])
	}
}

// leases calls do for every task that is leased under a token.
func (s *state) leases(token uint8, do func(l *slot)) {
	s.each(func(sh *shard) {
		for i := range sh.slots {
			if sh.slots[i].token == token {
				do(&sh.slots[i])
			}
		}
	})
}

// nobody is the token of leases whose owner is gone.
const nobody = 9

func (s *state) abandon(token uint8) { s.leases(token, func(l *slot) { l.token = nobody }) }
func (s *state) lapse(token uint8)   { s.leases(token, func(l *slot) { l.lapsed = 1 }) }

// held reports whether the owner of a lease with this token still knows of it.
func (s *state) held(token uint8) bool {
	if token <= maxMovers {
		return s.movers[token-1].holds()
	}
	return s.scanners[token-1-maxMovers].at != scannerIdle
}
