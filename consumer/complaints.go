package consumer

import (
	"sync"
	"time"
)

// complaintBeat is how often one thing is logged at most.
const complaintBeat = time.Minute

// complaints keeps a log from repeating itself.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// allow says whether it is time to log that again.
func (c *complaints) allow(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if last, said := c.last[what]; said && now.Sub(last) < complaintBeat {
		return false
	}
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	c.last[what] = now
	return true
}
