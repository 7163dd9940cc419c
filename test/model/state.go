package model

const (
	maxShards     = 3
	maxTasks      = 2
	maxProducers  = 3
	maxMovers     = 2
	maxScanners   = 2
	maxOperations = 5
)

// state is all that the next step depends on. It has no pointers, so that two
// are equal if their bytes are. A version is what one operation wrote; sets of
// versions, tasks, shards and operations are bits.
type state struct {
	key
	copied     key   // what a copy of the placement key holds, that it may fall back to
	newest     uint8 // placement that ever was in force
	due        uint8
	fired      uint8
	firedAgain uint8
	parked     uint8
	struck     uint8 // the failover, the restart or the fall has been
	copy       call  // lies in a socket
	shards     [maxShards]shard
	replicas   [maxShards]shard
	producers  [maxProducers]producer
	movers     [maxMovers]mover
	scanners   [maxScanners]scanner
	operations [maxOperations]operation
}

// key is what the placement key holds.
type key struct {
	placement uint8 // the one in force, by its place in the path
	clean     uint8 // shards
	cleanOf   uint8 // the placement that they were found clean under
}

// operation is how far one operation of a producer came.
type operation struct {
	status       uint8
	after        uint8 // operations that had returned when it began
	afterCrashed uint8 // operations whose callers had died when it began
}

const (
	notBegun uint8 = iota
	running
	returned
	crashed  // its caller died, or was told of an error
	inEffect // answered, without an effect of its own
)

// kind says what an operation is: S, C, G, A or R.
type kind byte

func (k kind) writes() bool { return k != 'G' }

// planned is one operation of a program; the version is 0 if it writes none.
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

// leases does something to every task that is leased under a token.
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

// held reports whether a token is one of a lease that its owner still knows of.
func (s *state) held(token uint8) bool {
	if token <= maxMovers {
		return s.movers[token-1].holds()
	}
	return s.scanners[token-1-maxMovers].at != scannerIdle
}
