package intake

import "sync"

const (
	// mostUnacked is the largest prefetch: two batches, one in Redis and one that arrives.
	mostUnacked = 2 * batchItems
	// leastUnacked keeps a queue of very large messages moving.
	leastUnacked = 4
	// firstUnacked is the prefetch while the messages' size isn't known.
	firstUnacked = 64
	// sampled is how many messages tell their size.
	sampled = firstUnacked
)

// sizes averages the bytes that messages take in memory, to choose a prefetch: RabbitMQ
// limits the number of unacked messages, not their bytes.
type sizes struct {
	mu      sync.Mutex
	n       int
	average float64
}

// add counts a message. The average follows the last few hundred.
func (s *sizes) add(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = min(s.n+1, batchItems)
	s.average += (float64(bytes) - s.average) / float64(s.n)
}

// prefetch returns how many unacked messages fit into room bytes.
func (s *sizes) prefetch(room int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < sampled {
		return firstUnacked
	}
	return min(max(int(float64(room)/s.average), leastUnacked), mostUnacked)
}
