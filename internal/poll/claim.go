package poll

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// claiming is a claim that was started.
type claiming struct {
	at     *polled
	node   *node
	rest   time.Time // no claim before it, if this one wasn't sent
	sent   bool
	answer Answer
	err    error
	took   time.Duration // until the answer came

	// Only the loop uses these.
	late, over bool
}

// mostLate times the number of claims that may be under way limits the late claims at a node. At
// the limit nothing more is claimed there until one of them is over.
const mostLate = 2

// claim starts claims from the shards whose time has come, as many as the demand allows.
func (p *Poller) claim(ctx context.Context, d Demand) {
	for p.under < d.Claims {
		a := p.queue.take(func(a *polled) bool { return a.node.late < mostLate*d.Claims })
		if a == nil {
			return
		}
		p.begin(a)
		p.under++
		c, tick, end, limit := &claiming{at: a, node: a.node}, p.tick.ctx, p.tick.end, patience(a.node.took)
		if a.node.silent {
			limit = 0
		}
		p.claims.Go(func() { p.carryOut(context.WithoutCancel(ctx), tick, c, end, limit) })
	}
}

// carryOut waits until the claim may be sent, sends it, and forwards what it found. If the answer
// takes longer than limit, the claim gives back its room, and the loop goes on.
func (p *Poller) carryOut(ctx, tick context.Context, c *claiming, end time.Time, limit time.Duration) {
	defer func() { p.post(event{claimed: c}) }()
	claim, rest := p.work.Reserve(tick)
	if c.rest, c.sent = rest, claim != nil; !c.sent {
		return
	}
	began := time.Now()
	timer := time.AfterFunc(limit, func() {
		claim.GiveBack()
		p.post(event{late: c})
	})
	c.answer, c.err = claim.Send(ctx, c.at.shard, end.Sub(began))
	timer.Stop()
	c.took = time.Since(began)
	claim.Forward(ctx)
}

// late notes that a claim's answer takes long.
func (p *Poller) late(c *claiming) {
	if c.over {
		return
	}
	c.late, c.node.silent = true, true
	c.node.late++
	p.under--
}

// claimed notes the outcome of a claim.
func (p *Poller) claimed(ctx context.Context, c *claiming) {
	c.over = true
	if c.late {
		c.node.late--
	} else {
		p.under--
	}
	switch {
	case !c.sent:
		p.rest = c.rest
	case c.err == nil:
		c.node.took, c.node.silent = c.took, false
		p.tick.empty = p.tick.empty && c.answer.Found == 0
		p.work.Works(ctx, c.node.name)
		c.at.claimed(c.answer)
	default: // the other shards are served meanwhile
		c.node.took = c.took
		if !shard.Definite(c.err) { // a problem of one shard alone is no outage
			p.work.Fails(ctx, c.node.name, "claim", c.err)
		}
		c.at.fail(c.at.retry.Next())
	}
	p.finish(c.at)
}
