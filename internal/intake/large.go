package intake

import (
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/task"
)

// Large bounds the memory of messages that are larger than the room of their topic. The intakes of
// a process share it. One that has no place for such a message waits, in the order of the requests.
type Large struct {
	limit int64
	bytes *semaphore.Weighted
}

// NewLarge returns a bound in bytes. A message above it is taken if there is no other one.
func NewLarge(limit int) *Large {
	return &Large{limit: int64(limit), bytes: semaphore.NewWeighted(int64(limit))}
}

// alone reports whether a message that is larger than the room may be taken; nothing is unacked, and
// s.mu is held. If not, it asks Large, and fires s.room once it may be.
func (s *session) alone(bytes int) bool {
	of := s.in.cfg.Large
	want := min(int64(bytes), of.limit)
	if s.granted == 0 && !s.asking && of.bytes.TryAcquire(want) {
		s.granted = want
	}
	if s.granted > 0 || s.asking {
		return s.granted > 0
	}
	s.asking = true
	go func() {
		err := of.bytes.Acquire(s.taking, want)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = false
		switch {
		case err != nil:
		case s.shut:
			of.bytes.Release(want)
		default:
			s.granted = want
		}
		s.room.Fire()
	}()
	return false
}

// arrival is a message whose size is known, and that amqp091-go hasn't passed on.
type arrival struct {
	// bytes that it takes in memory; 0: it isn't admitted.
	bytes int
	// rejected is the size of its body in bytes if it comes without and is rejected; else 0.
	rejected int
}

// arrive takes the next message; s.mu is held.
func (s *session) arrive(it *item) {
	next := s.coming[0]
	s.coming = s.coming[1:]
	if next.bytes == 0 {
		return
	}
	if it.bytes = next.bytes; next.rejected > 0 {
		it.rejects = true
		it.refusal = &refusal{refusedPayload, &task.RuleError{Field: "payload", Got: fmt.Sprintf("%d bytes", next.rejected),
			Rule: fmt.Sprintf("must be at most %d bytes (max_payload)", s.rules.maxPayload)}}
	}
	s.arrived = append(s.arrived, it)
}
