package forward

import (
	"cmp"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// Target returns cfg with high limits. A slow machine or a process that stands still then
// ends no connection and gives up no message. Values that cfg sets stay.
func Target(cfg Config) Config {
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, check.Hang)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, check.Hang)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, check.Hang)
	cfg.pace = pace{stall: time.Hour, answer: check.Hang, rest: time.Nanosecond}
	return cfg
}

// Suspicious is Target, but a suspected broker must answer within answer.
func Suspicious(cfg Config, answer time.Duration) Config {
	cfg = Target(cfg)
	cfg.pace.answer = answer
	return cfg
}

// InFlight returns how many messages have no result on the channel that Publish uses.
func (p *Publisher) InFlight() int {
	_, _, ch := p.wanted()
	if ch == nil {
		return 0
	}
	ch.confirms.mu.Lock()
	defer ch.confirms.mu.Unlock()
	return ch.confirms.owed
}

// Lost reports whether the library knows that Publish's channel is lost.
func (p *Publisher) Lost() bool {
	_, _, ch := p.wanted()
	return ch == nil || ch.amqp.IsClosed()
}

// AskedToStop reports whether a channel has an unread request to give up what is in flight.
func (p *Publisher) AskedToStop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ch := range p.channels {
		if len(ch.stop) > 0 {
			return true
		}
	}
	return false
}

// Places returns the number of places of the channel that Publish uses; 0 without one.
func (p *Publisher) Places() int {
	ch, _ := p.installed()
	if ch == nil {
		return 0
	}
	return len(ch.confirms.ring)
}

// Widen gives the topic a channel with at least that many places, or with its window.
func (p *Publisher) Widen(places int) {
	p.widen(places)
	p.look()
}

// Shared returns how many open channels wait for the next topic that rests and checks its route.
func (c *Connection) Shared() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conn.shared)
}

// Crowd takes all turns of topics that rest, and returns what gives them back.
func (c *Connection) Crowd() (leave func()) {
	for range cap(c.checks) {
		c.checks <- struct{}{}
	}
	return func() {
		for range cap(c.checks) {
			<-c.checks
		}
	}
}
