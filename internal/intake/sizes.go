package intake

import "sync"

const (
	// mostUnacked is the largest prefetch: two batches, one in Redis and one that arrives.
	mostUnacked = 2 * batchItems
	// firstUnacked is the prefetch while the messages' size isn't known.
	firstUnacked = 2
	// growth is by how much a busy queue's prefetch grows at most in one step.
	growth = 8
)

// sizes follows the bytes that messages take in memory, to choose a prefetch: RabbitMQ
// limits the number of unacked messages, not their bytes.
type sizes struct {
	mu sync.Mutex
	n  int
	// average of the last few hundred. One large message among them changes it little.
	average float64
	// largest of the last few hundred: it fades.
	largest float64
}

// add counts a message.
func (s *sizes) add(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = min(s.n+1, batchItems)
	s.average += (float64(bytes) - s.average) / float64(s.n)
	s.largest = max(float64(bytes), s.largest-s.largest/batchItems)
}

// prefetch returns the prefetch to use after now. A busy queue's grows while as many of the
// largest messages fit into room bytes. It shrinks if half as many of the average size don't
// fit.
func (s *sizes) prefetch(now, room int, busy bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return now
	}
	fit := func(bytes float64) int { return min(max(int(float64(room)/bytes), 1), mostUnacked) }
	if safe := fit(s.largest); fit(s.average) <= now/2 || busy && safe >= 2*now {
		return min(safe, growth*now)
	}
	return now
}
