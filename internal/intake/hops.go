package intake

import (
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
)

// The headers of a delivered message that was due within shortRound. They show a message
// that goes round without end.
const (
	// HeaderHops is how often an intake took the message within shortRound after the last time.
	HeaderHops = amqpmsg.HeaderHops
	// HeaderTaken is when an intake took the message, in Unix ms by the scanner's clock.
	HeaderTaken = amqpmsg.HeaderTaken
)

const (
	// mostHops is how often a message may go round.
	mostHops = 16
	// shortRound is shorter than the wait of a retry.
	shortRound = time.Second
)

// hop is how often a message was taken in, now included.
type hop struct {
	count int64
	taken time.Time
}

// hopOf returns the hop of a message that was taken at now. A slow round isn't counted. A
// clock that was set back makes a round a short one.
func hopOf(headers map[string]any, now time.Time) hop {
	count, _ := integer(headers[HeaderHops])
	taken, there := integer(headers[HeaderTaken])
	if !there || now.Sub(time.UnixMilli(taken)) < shortRound {
		count++
	}
	return hop{count, now}
}

// check returns an error if the message goes round.
func (h hop) check() error {
	if h.count <= mostHops {
		return nil
	}
	return fmt.Errorf("header %s: the message came back within %v for the %dth time; look where the topic's exchange "+
		"sends it", HeaderHops, shortRound, mostHops)
}

// mark sets the headers of a message that is due at once. One that waits goes round slowly,
// and stays as it was published.
func (h hop) mark(headers map[string]any, dueAt time.Time) {
	if dueAt.Sub(h.taken) < shortRound {
		headers[HeaderHops], headers[HeaderTaken] = h.count, h.taken.UnixMilli()
	}
}
