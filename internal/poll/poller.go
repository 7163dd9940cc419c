// Package poll decides when a scanner looks at the shards of a topic, and when it claims from
// them. Each topic has a Poller.
//
// In each tick it draws tickets, which name its shards until the next tick. It looks at each of
// them once, and then knows when the next task is due there. A wake-up tells it about a task
// that is due sooner. When a task is due, it starts a claim. Draws and looks of all topics go to
// Redis together. It waits for no answer, so a server that hangs delays only what it has to
// answer itself.
package poll

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// Demand says how a topic must be polled now.
type Demand struct {
	// Claims is how many claims may be under way; 0: the topic isn't polled. Tickets is how
	// many are drawn in each tick, at most one for each shard.
	Claims, Tickets int
	Tick            time.Duration
	Longer          bool // a tick may last longer, as long as others poll the shards too.
	Scanned         int  // how many shards the fleet polls
	Fixed           int  // how many claims the settings ask for; 0: as many as it takes
	Paused          bool // nothing is claimed
}

// Work does what a poller decides for a topic. Its methods are called by one goroutine at a time,
// return soon, and don't call the poller. But Claim may take long, and is called by several.
type Work interface {
	Demand() Demand
	// Drawn takes the placement that a draw read.
	Drawn(p shard.Placement)
	// Begin is called when the shards of a tick are known, and End when the tick is over.
	// life ends with Run. empty reports that no claim found a task.
	Begin(life, tick context.Context, shards []int, p shard.Placement)
	End(empty bool)
	// Claimed reports whether the last claim from a shard worked. Other shards are claimed
	// from without a look. So a missing right shows at once, and not only when a task is due.
	Claimed(shard int) bool
	// Claim waits until a claim may be sent, sends it, and passes on what it found. It sends nothing
	// if tick ends first. It doesn't either if the topic's rate allows no task, or if Redis doesn't
	// tell. Then nothing is claimed before Answer.Rest. The end of life doesn't interrupt it.
	Claim(life, tick context.Context, r Request) Answer
	// Fails notes that a node doesn't serve the topic, Works that it does. Keep forgets all
	// nodes that it isn't called with. nil means that the topic isn't polled, so that no call
	// could show that Redis serves it again.
	Fails(ctx context.Context, node, operation string, err error)
	Works(ctx context.Context, node string)
	Keep(ctx context.Context, nodes map[string]bool)
}

// Request asks for a claim from a shard, which is polled until End. If Redis doesn't answer for
// Patience, the claim gives back what is reserved for it, and calls Late.
type Request struct {
	Shard    int
	End      time.Time
	Patience time.Duration
	Late     func()
}

// Answer is the answer to a claim. If it wasn't sent, only Rest may be set. After an error only Asked
// and Heard are.
type Answer struct {
	Sent bool
	Rest time.Time
	Err  error
	// Asked and Heard are when the claim was sent and answered, by this process's clock. At
	// Heard, Redis's clock showed Now.
	Asked, Heard, Now time.Time
	// Next and Polled come from shard.Batch. Found counts the tasks.
	Next, Polled time.Time
	Found        int
}

// Poller polls one topic, from Start to Stop. It has no goroutine of its own. The goroutine that has
// an event for it makes the next step. The event is an alarm, an answer, the end of a claim, a
// wake-up, or a change of the demand. One step is made at a time. See docs/adr/0050.
type Poller struct {
	topic    *shard.Topic
	instance string
	convoy   *shard.Convoy
	alarms   *wake.Alarms
	pool     *wake.Pool
	work     Work
	changed  *wake.Broadcast

	claims sync.WaitGroup
	looked atomic.Uint64 // changes of the demand that were looked at, and 1

	mu    sync.Mutex
	life  context.Context // of Start; nil before it and after Stop
	alarm *wake.Alarm
	rings time.Time // when it does; zero: it isn't set
	tick  tick
	queue queue
	busy  map[int]*polled // by shard: a look or a claim is under way
	nodes map[string]*node
	under int       // claims under way that the poller waits for
	rest  time.Time // no claim before it
}

// New returns a topic's poller in a scanner, the instance. changed fires when the demand may have
// changed.
func New(t *shard.Topic, instance string, convoy *shard.Convoy, alarms *wake.Alarms, pool *wake.Pool, work Work,
	changed *wake.Broadcast) *Poller {
	return &Poller{topic: t, instance: instance, convoy: convoy, alarms: alarms, pool: pool, work: work, changed: changed,
		busy: map[int]*polled{}, nodes: map[string]*node{}}
}

// Start polls until ctx ends, whenever there is a demand. Follow Chore until then, and call Stop.
func (p *Poller) Start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.alarm = ctx, p.alarms.New(func() { p.carryOut(p.after(func() { p.rings = time.Time{} })) })
}

// Chore follows changes of the demand.
func (p *Poller) Chore() *wake.Chore {
	return &wake.Chore{
		Wanted: func() bool { return p.looked.Load() != p.changed.Fires()+1 },
		Do: func(context.Context) {
			p.looked.Store(p.changed.Fires() + 1)
			p.share(p.after(func() {}))
		},
	}
}

// Stop ends the tick, and waits for the claims that are under way.
func (p *Poller) Stop() {
	p.mu.Lock()
	p.leave(context.WithoutCancel(p.life))
	p.life = nil
	p.alarm.Close()
	p.mu.Unlock()
	p.claims.Wait()
}

// Hear notes that a task with this score, in Redis ms, became the earliest of a shard.
func (p *Poller) Hear(shard int, score int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.tick.drawing; d != nil {
		d.hear(shard, score)
	}
	a := p.tick.shards[shard]
	if a == nil {
		return
	}
	a.wake(score)
	switch p.queue.put(a); {
	case a.busy || a.next.IsZero():
	case !a.next.After(time.Now()):
		p.share(p.step())
	case p.rings.IsZero() || a.next.Before(p.rings):
		p.ring(a.next)
	}
}

// after notes an event, and makes the next step. It returns the claims to carry out.
func (p *Poller) after(event func()) []*claiming {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return nil
	}
	event()
	return p.step()
}

// step does everything whose time has come, and sets the alarm for the rest. It returns the claims to
// carry out. p.mu is held.
func (p *Poller) step() (claims []*claiming) {
	if p.life.Err() != nil {
		return nil
	}
	d := p.work.Demand()
	if d.Claims == 0 {
		p.leave(p.life)
		return nil
	}
	now := time.Now()
	p.turn(p.life, d, now)
	p.look(now)
	next := p.tick.next(now)
	if !d.Paused && !p.rest.After(now) {
		claims = p.claim(d)
	} else if p.rest.After(now) && p.rest.Before(next) {
		next = p.rest
	}
	if first, there := p.queue.later.First(); there && first.next.Before(next) {
		next = first.next
	}
	if !next.Equal(p.rings) {
		p.ring(next)
	}
	return claims
}

// ring sets the alarm; p.mu is held.
func (p *Poller) ring(at time.Time) {
	p.alarm.Set(at)
	p.rings = at
}

// carryOut carries out a claim, and then one that follows from its answer. Other goroutines carry out
// the other claims.
func (p *Poller) carryOut(claims []*claiming) {
	for len(claims) > 0 {
		p.share(claims[1:])
		c := claims[0]
		c.answer = p.work.Claim(c.life, c.tick, c.request)
		claims = p.after(func() { p.claimed(c) })
		p.claims.Done()
	}
}

// share lets other goroutines carry out claims.
func (p *Poller) share(claims []*claiming) {
	for _, c := range claims {
		p.pool.Go(func() { p.carryOut([]*claiming{c}) })
	}
}

// node holds what a poller knows about one master of a Redis Cluster, or about the one Redis.
type node struct {
	name   string        // "" if Redis isn't a cluster
	began  time.Time     // of the slots of looks.
	silent bool          // a claim was late, and no answer has come since
	late   int           // late claims under way
	took   time.Duration // how long its last answer took
}

// The answer to a claim or a draw is late after twice the time that the last answer took. That
// time is bounded by leastPatience and mostPatience.
const (
	leastPatience = 100 * time.Millisecond
	mostPatience  = 2 * time.Second
)

func patience(took time.Duration) time.Duration {
	return min(max(2*took, leastPatience), mostPatience)
}

// look is a look at shards of one node.
type look struct {
	node   *node
	shards []*polled
	began  time.Time
	heard  time.Time
	found  []shard.Attention
}

// look asks when shards need attention, if nothing is known about them.
func (p *Poller) look(now time.Time) {
	for n, shards := range p.queue.ripen(now) {
		l, at := &look{node: n, shards: shards, began: now}, make([]int, len(shards))
		for i, a := range shards {
			at[i] = a.shard
			p.begin(a)
		}
		p.convoy.Look(p.topic, n.name, at, func(found []shard.Attention) {
			l.found, l.heard = found, time.Now()
			p.share(p.after(func() { p.lookedAt(l) }))
		})
	}
}

// lookedAt notes the outcome of a look. Shards that can't be reached are looked at again together.
// A shard that Redis refuses is claimed from, because the claim's error says why.
func (p *Poller) lookedAt(l *look) {
	l.node.took = l.heard.Sub(l.began)
	var pause time.Duration
	for i, a := range l.shards {
		seen := l.found[i]
		switch {
		case seen.Err == nil:
			a.learn(seen.Heard, seen.Now, seen.Next)
		case shard.Definite(seen.Err):
			a.unseen = false
		default:
			if pause == 0 {
				pause = a.retry.Next()
				p.work.Fails(p.life, l.node.name, "claim", seen.Err)
			}
			a.fail(pause)
		}
		p.finish(a)
	}
	if pause == 0 {
		l.node.silent = false
		p.work.Works(p.life, l.node.name)
	}
}

// claiming is a claim that was started.
type claiming struct {
	at         *polled
	node       *node
	life, tick context.Context
	request    Request
	answer     Answer
	late, over bool
}

// mostLate times the number of claims that may be under way limits the late claims at a node. At
// the limit nothing more is claimed there until one of them is over.
const mostLate = 2

// claim returns claims from the shards whose time has come, as many as the demand allows.
func (p *Poller) claim(d Demand) (all []*claiming) {
	for p.under < d.Claims {
		a := p.queue.take(func(a *polled) bool { return a.node.late < mostLate*d.Claims })
		if a == nil {
			break
		}
		p.begin(a)
		p.under++
		c := &claiming{at: a, node: a.node, life: context.WithoutCancel(p.life), tick: p.tick.ctx,
			request: Request{Shard: a.shard, End: p.tick.end, Patience: patience(a.node.took)}}
		c.request.Late = func() { p.share(p.after(func() { p.late(c) })) }
		if a.node.silent {
			c.request.Patience = 0
		}
		p.claims.Add(1)
		all = append(all, c)
	}
	return all
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
func (p *Poller) claimed(c *claiming) {
	c.over = true
	answer := c.answer
	if c.late {
		c.node.late--
	} else {
		p.under--
	}
	switch took := answer.Heard.Sub(answer.Asked); {
	case !answer.Sent:
		p.rest = answer.Rest
	case answer.Err == nil:
		c.node.took, c.node.silent = took, false
		p.tick.empty = p.tick.empty && answer.Found == 0
		p.work.Works(p.life, c.node.name)
		answer.Heard = p.convoy.Heard(c.node.name, answer.Now, answer.Asked, answer.Heard)
		c.at.claimed(answer)
	default: // the other shards are served meanwhile
		c.node.took = took
		if !shard.Definite(answer.Err) { // a problem of one shard alone is no outage
			p.work.Fails(p.life, c.node.name, "claim", answer.Err)
		}
		c.at.fail(c.at.retry.Next())
	}
	p.finish(c.at)
}

// begin notes that a call about a shard is under way.
func (p *Poller) begin(a *polled) {
	a.busy, a.woken = true, false
	p.busy[a.shard] = a
}

// finish notes that a call about a shard is over.
func (p *Poller) finish(a *polled) {
	delete(p.busy, a.shard)
	a.ended()
	if p.tick.shards[a.shard] == a {
		p.queue.put(a)
	}
}
