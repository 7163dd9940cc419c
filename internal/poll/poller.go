// Package poll decides when a scanner looks at the shards of a topic, and when it claims from
// them. Each topic has a Poller, which is one loop.
//
// In each tick it draws tickets, which name its shards until the next tick. It looks at each of
// them once, and then knows when the next task is due there. A wake-up tells it about a task
// that is due sooner. When a task is due, it starts a claim. Draws and looks of all topics go to
// Redis together. The loop itself waits for no answer, so a server that hangs delays only what
// it has to answer itself.
package poll

import (
	"context"
	"sync"
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

// Work does what a poller decides for a topic. Its methods are called by one goroutine, and return
// soon. But Claim may take long, and is called by several.
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

// Poller polls one topic. Only one Run may be under way; Hear may be called at any time.
type Poller struct {
	topic    *shard.Topic
	instance string
	convoy   *shard.Convoy
	alarms   *wake.Alarms
	pool     *wake.Pool
	work     Work
	changed  *wake.Broadcast

	news   wake.Signal // there are events or scores
	mu     sync.Mutex
	events []event
	scores map[int]int64 // by shard: the earliest that was heard

	// The rest belongs to Run.
	claims sync.WaitGroup
	tick   tick
	queue  queue
	busy   map[int]*polled // by shard: a look or a claim is under way
	nodes  map[string]*node
	under  int       // claims under way that the poller waits for
	rest   time.Time // no claim before it
}

// event is the end of a call, or a claim whose answer is late; one of its fields is set.
type event struct {
	drawn   *drawn
	looked  *look
	claimed *claiming
	late    *claiming
}

// New returns a topic's poller in a scanner, the instance. changed fires when the demand may have
// changed.
func New(t *shard.Topic, instance string, convoy *shard.Convoy, alarms *wake.Alarms, pool *wake.Pool, work Work,
	changed *wake.Broadcast) *Poller {
	return &Poller{topic: t, instance: instance, convoy: convoy, alarms: alarms, pool: pool, work: work, changed: changed,
		news: wake.NewSignal(), busy: map[int]*polled{}, nodes: map[string]*node{}}
}

// Hear notes that a task with this score, in Redis ms, became the earliest of a shard.
func (p *Poller) Hear(shard int, score int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scores == nil {
		p.scores = map[int]int64{}
	}
	if before, there := p.scores[shard]; !there || score < before {
		p.scores[shard] = score
	}
	p.news.Send()
}

// post tells the loop about an event.
func (p *Poller) post(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	p.news.Send()
}

// Run polls until ctx ends, or until the topic need not be polled. Then it waits for its claims.
// Call it again when the topic must be polled.
func (p *Poller) Run(ctx context.Context) {
	alarm, set := p.alarms.New(), time.Time{} // when it rings
	defer p.claims.Wait()
	defer alarm.Close()
	for ctx.Err() == nil {
		changed := p.changed.Next()
		p.note(ctx)
		rings := alarm.Rings
		if d := p.work.Demand(); d.Claims > 0 {
			if next := p.step(ctx, d); !next.Equal(set) {
				alarm.Set(next)
				set = next
			}
		} else if p.leave(ctx); len(p.busy) == 0 && p.tick.drawing == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-rings:
			set = time.Time{}
		case <-p.news:
		}
	}
	p.leave(context.WithoutCancel(ctx))
}

// step does everything whose time has come, and returns when to do more.
func (p *Poller) step(ctx context.Context, d Demand) time.Time {
	now := time.Now()
	p.turn(ctx, d, now)
	p.look(now)
	next := p.tick.next(now)
	if !d.Paused && !p.rest.After(now) {
		p.claim(ctx, d)
	} else if p.rest.After(now) && p.rest.Before(next) {
		next = p.rest
	}
	if first, there := p.queue.later.First(); there && first.next.Before(next) {
		next = first.next
	}
	return next
}

// note notes what happened since the last call.
func (p *Poller) note(ctx context.Context) {
	p.mu.Lock()
	events, scores := p.events, p.scores
	p.events, p.scores = nil, nil
	p.mu.Unlock()
	for at, score := range scores {
		if a := p.tick.shards[at]; a != nil {
			a.wake(score)
			p.queue.put(a)
		}
		if d := p.tick.drawing; d != nil {
			d.hear(at, score)
		}
	}
	for _, e := range events {
		switch {
		case e.drawn != nil:
			p.drawn(ctx, e.drawn)
		case e.looked != nil:
			p.looked(ctx, e.looked)
		case e.claimed != nil:
			p.claimed(ctx, e.claimed)
		default:
			p.late(e.late)
		}
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
			p.post(event{looked: l})
		})
	}
}

// looked notes the outcome of a look. Shards that can't be reached are looked at again together.
// A shard that Redis refuses is claimed from, because the claim's error says why.
func (p *Poller) looked(ctx context.Context, l *look) {
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
				p.work.Fails(ctx, l.node.name, "claim", seen.Err)
			}
			a.fail(pause)
		}
		p.finish(a)
	}
	if pause == 0 {
		l.node.silent = false
		p.work.Works(ctx, l.node.name)
	}
}

// claiming is a claim that was started.
type claiming struct {
	at     *polled
	node   *node
	answer Answer

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
		c, tick := &claiming{at: a, node: a.node}, p.tick.ctx
		r := Request{Shard: a.shard, End: p.tick.end, Patience: patience(a.node.took)}
		r.Late = func() { p.post(event{late: c}) }
		if a.node.silent {
			r.Patience = 0
		}
		p.claims.Add(1)
		p.pool.Go(func() {
			defer p.claims.Done()
			c.answer = p.work.Claim(context.WithoutCancel(ctx), tick, r)
			p.post(event{claimed: c})
		})
	}
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
		p.work.Works(ctx, c.node.name)
		answer.Heard = p.convoy.Heard(c.node.name, answer.Now, answer.Asked, answer.Heard)
		c.at.claimed(answer)
	default: // the other shards are served meanwhile
		c.node.took = took
		if !shard.Definite(answer.Err) { // a problem of one shard alone is no outage
			p.work.Fails(ctx, c.node.name, "claim", answer.Err)
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
