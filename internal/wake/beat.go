package wake

import (
	"math/rand/v2"
	"time"
)

// Beat says when the chores of a process run: all at the same moments. A process that sleeps
// then wakes once for all of them, and each wake-up costs it more than most chores. A Beat is
// how much later than each whole second of this machine's clock that is.
type Beat time.Duration

// NewBeat returns a random one, so that the processes of a fleet don't run their chores at the
// same time.
func NewBeat() Beat { return Beat(rand.N(time.Second)) } //nolint:gosec // jitter needs no secrecy

// Until returns how long it is until the next of the moments that are every apart. It is above 0,
// and at most every.
func (b Beat) Until(every time.Duration) time.Duration {
	return every - time.Duration((time.Now().UnixNano()-int64(b))%int64(every))
}
