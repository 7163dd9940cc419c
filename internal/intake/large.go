package intake

import "golang.org/x/sync/semaphore"

// Large bounds the memory of messages that are larger than the room of their topic. The intakes of
// a process share it. One that has no place for such a message leaves it in its queue meanwhile.
type Large struct {
	limit int64
	bytes *semaphore.Weighted
}

// NewLarge returns a bound in bytes. A message above it is taken if there is no other one.
func NewLarge(limit int) *Large {
	return &Large{limit: int64(limit), bytes: semaphore.NewWeighted(int64(limit))}
}
