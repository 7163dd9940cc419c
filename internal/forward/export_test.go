package forward

import (
	"time"

	"github.com/duefleet/duefleet/test/wait"
)

// Patient makes a configuration with which neither a slow machine nor a process
// that stands still for a while ends a connection or gives up a message. What it
// sets already stays.
func Patient(cfg Config) Config {
	cfg.WriteTimeout = orDefault(cfg.WriteTimeout, wait.Hang)
	cfg.ConnectTimeout = orDefault(cfg.ConnectTimeout, wait.Hang)
	cfg.Heartbeat = orDefault(cfg.Heartbeat, wait.Hang)
	cfg.pace = pace{stall: time.Hour, answer: wait.Hang}
	return cfg
}

// Suspicious is Patient with a broker that gets no more than answer once it is
// suspected of not answering any more.
func Suspicious(cfg Config, answer time.Duration) Config {
	cfg = Patient(cfg)
	cfg.pace.answer = answer
	return cfg
}

// InFlight is how many messages have no result yet on the channel
// that Publish uses.
func (p *Publisher) InFlight() int {
	_, _, ch := p.wanted()
	if ch == nil {
		return 0
	}
	ch.confirms.mu.Lock()
	defer ch.confirms.mu.Unlock()
	return ch.confirms.owed
}

// Lost reports whether the library knows that the channel that Publish uses is lost.
func (p *Publisher) Lost() bool {
	_, _, ch := p.wanted()
	return ch == nil || ch.amqp.IsClosed()
}

// Told reports whether a channel was told to give up what is in flight, and did not
// look yet.
func (p *Publisher) Told() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ch := range p.channels {
		if len(ch.stop) > 0 {
			return true
		}
	}
	return false
}
