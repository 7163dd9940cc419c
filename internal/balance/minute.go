package balance

import (
	"math"
	"sync"
	"time"
)

const (
	// minuteSlot is the span of one slot. minuteSlots is the number of slots: the last
	// minute's, and the current one.
	minuteSlot  = 5 * time.Second
	minuteSlots = int64(time.Minute/minuteSlot) + 1
)

// LastMinute counts the tasks of a topic that were forwarded in the last minute by how late they
// were, in a ring of slots. It is safe for concurrent use.
type LastMinute struct {
	began time.Time // slots count from here

	mu     sync.Mutex
	newest int64 // the newest slot that counted something
	ring   [minuteSlots]minuteCounts
}

// minuteCounts are the counts of one slot by lateness. slot is its number since began; by
// is nil if it counted nothing.
type minuteCounts struct {
	slot int64
	by   *[LatenessBuckets]int64
}

// NewLastMinute returns one that counts from now on.
func NewLastMinute() *LastMinute { return &LastMinute{began: time.Now()} }

// Forwarded counts a task.
func (m *LastMinute) Forwarded(now time.Time, late time.Duration) {
	slot := int64(now.Sub(m.began) / minuteSlot)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.ring[slot%minuteSlots]
	if s.by == nil || s.slot < slot {
		*s = minuteCounts{slot, &[LatenessBuckets]int64{}}
	}
	s.by[LatenessBucket(late)]++
	m.newest = max(m.newest, slot)
}

// AddTo adds the counts to what this scanner reports about the topic. They cover 60 to 65
// s, or less if the topic hasn't been served for that long. If nothing was forwarded in
// that time, AddTo frees the memory.
func (m *LastMinute) AddTo(n *TopicNote) {
	since := time.Since(m.began)
	oldest := max(int64(since/minuteSlot)-minuteSlots+1, 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest < oldest {
		m.ring = [minuteSlots]minuteCounts{}
		return
	}
	total, late := int64(0), Lateness{}
	for _, s := range m.ring {
		if s.by == nil || s.slot < oldest {
			continue
		}
		for bucket, tasks := range s.by {
			if tasks > 0 {
				late[bucket] += tasks
				total += tasks
			}
		}
	}
	if total == 0 {
		return
	}
	span := max(since-time.Duration(oldest)*minuteSlot, time.Second)
	n.PerSecond = math.Round(1000*float64(total)/span.Seconds()) / 1000
	n.Lateness = late
}
