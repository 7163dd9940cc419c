package poll

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
)

// tick is the tick that a poller is in.
type tick struct {
	shards map[int]*polled // by number
	of     *drawn          // names the shards; nil: the poller has none
	end    time.Time       // zero: no tick has begun
	empty  bool            // no claim found a task
	ctx    context.Context // ends with the tick
	cancel context.CancelFunc

	drawing *drawn        // a draw under way.
	fresh   *drawn        // the result of the last draw, if it wasn't used so far.
	took    time.Duration // from the last draw to its answer.
	pause   time.Time     // no draw before it: the last one failed.
	retry   retry.Backoff
}

// drawn is a draw for a tick, and its result.
type drawn struct {
	shard.Drawn
	began  time.Time
	end    time.Time // of its tick
	demand Demand
	shards []int
	heard  map[int]int64 // by shard: the earliest score that was heard since
	took   time.Duration
	err    error
}

// fits reports whether the result of a draw can be used.
func (d *drawn) fits(now Demand) bool {
	return now.Tick == d.demand.Tick && now.Fixed == d.demand.Fixed && now.Scanned == d.Placement.Scanned()
}

// primary returns until when a shard has another primary, and until when it has two other scanners,
// by this process's clock; zero: it has not. The first of the scanners that drew a shard is its
// primary until its tick ends. So this scanner comes after all that drew before it.
func (d *drawn) primary(at int) (until, two time.Time) {
	for _, other := range d.Others {
		if !balance.Names(other.First, other.N, d.Placement.Scanned(), at) {
			continue
		}
		switch leaves := d.Heard.Add(other.Until.Sub(d.Now)); {
		case leaves.After(until):
			until, two = leaves, until
		case leaves.After(two):
			two = leaves
		}
	}
	return until, two
}

// hear notes a wake-up that the draw's looks may have missed.
func (d *drawn) hear(at int, score int64) {
	if d.heard == nil {
		d.heard = map[int]int64{}
	}
	if before, there := d.heard[at]; !there || score < before {
		d.heard[at] = score
	}
}

// following returns the shards of the next tickets, as if they had been drawn.
func (d *drawn) following() *drawn {
	next := *d
	next.Looked, next.heard = nil, nil
	next.shards = make([]int, len(d.shards))
	for i, at := range d.shards {
		next.shards[i] = (at + len(d.shards)) % d.Placement.Scanned()
	}
	return &next
}

// turn draws tickets when a tick is over, and polls the tick's shards until the answer comes.
// While Redis doesn't answer, the poller goes on to the following shards in each tick. The
// pollers of other scanners do so too, and no shard is left alone. A tick ends at once when the
// demand no longer fits, and when a late draw is answered.
func (p *Poller) turn(ctx context.Context, d Demand, now time.Time) {
	t := &p.tick
	if t.of != nil && !t.of.fits(d) {
		p.drop()
	}
	if fresh := t.fresh; fresh != nil {
		if t.fresh = nil; fresh.fits(d) {
			p.adopt(ctx, fresh, now)
		} else {
			t.pause = now.Add(t.retry.Next())
		}
	}
	if t.of != nil && now.Before(t.end) {
		return
	}
	if t.drawing == nil && !now.Before(t.pause) {
		p.draw(ctx, d, now)
	}
	if t.of != nil && (t.drawing == nil || now.Sub(t.drawing.began) >= patience(t.took)) {
		p.adopt(ctx, t.of.following(), now)
	}
}

// next returns when turn has something to do next, if no draw is answered.
func (t *tick) next(now time.Time) time.Time {
	switch {
	case t.of != nil && t.end.After(now):
		return t.end
	case t.drawing == nil:
		return t.pause
	case t.of != nil:
		return t.drawing.began.Add(patience(t.took))
	}
	return now.Add(mostPatience)
}

// draw takes tickets and reads the placement.
func (p *Poller) draw(ctx context.Context, d Demand, now time.Time) {
	one := &drawn{began: now, end: p.nextEnd(now, d.Tick), demand: d}
	p.tick.drawing = one
	request := shard.Draw{Instance: p.instance, N: d.Tickets, Stay: one.end.Sub(now), Scanned: d.Scanned}
	if d.Longer {
		request.After, request.MostStay = d.Tick, mostTicks*d.Tick
	}
	p.convoy.Draw(ctx, p.topic, request, func(answer shard.Drawn, err error) {
		if one.took, one.err = time.Since(one.began), err; err == nil {
			one.Drawn, one.shards = answer, balance.Shards(answer.First, d.Tickets, answer.Placement.Scanned())
			if stay := answer.Until.Sub(answer.Now); stay > request.Stay {
				one.end = p.slot(answer.Heard.Add(stay), d.Tick)
			}
		}
		p.share(p.after(func() { p.drawn(one) }))
	})
}

// mostTicks is how many ticks a scanner polls the shards of its tickets, at most. When each
// scanner polls all shards, it stays a tick longer than the others. So they draw in turn, one in
// each tick. See docs/adr/0043.
const mostTicks = 4

// drawn notes the outcome of a draw.
func (p *Poller) drawn(d *drawn) {
	t := &p.tick
	if t.drawing, t.took = nil, d.took; d.err != nil {
		t.pause = time.Now().Add(t.retry.Next())
		p.work.Fails(p.life, "", "draw", d.err)
		if shard.Definite(d.err) || errors.Is(d.err, task.ErrUnknownTopic) {
			p.drop()
		}
		return
	}
	t.fresh, t.pause = d, time.Time{}
	t.retry.Reset()
	p.work.Works(p.life, "")
	p.work.Drawn(d.Placement)
}

// adopt begins a tick with the shards of a draw. A shard with a call under way is looked at
// again after it, because the poller may have missed wake-ups.
func (p *Poller) adopt(ctx context.Context, d *drawn, now time.Time) {
	p.drop()
	t, nodes := &p.tick, map[string]bool{}
	if t.of, t.empty, t.end = d, true, d.end; !t.end.After(now) {
		t.end = p.nextEnd(now, d.demand.Tick)
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.shards = make(map[int]*polled, len(d.shards))
	for i, at := range d.shards {
		a := p.busy[at]
		if a == nil {
			a = &polled{shard: at, next: now, unseen: p.work.Claimed(at)}
		}
		a.node, a.again, a.tick = p.nodeOf(ctx, at), a.busy, d.demand.Tick
		a.other, a.two = d.primary(at)
		if !a.busy {
			if a.unseen && d.Looked != nil {
				a.node.took = d.took
				a.learn(d.Heard, d.Now, d.Looked[i].Next)
			}
			if score, heard := d.heard[at]; heard {
				a.wake(score)
			}
		}
		t.shards[at] = a
		nodes[a.node.name] = true
		p.queue.put(a)
	}
	p.work.Keep(ctx, nodes)
	p.work.Begin(ctx, t.ctx, d.shards, d.Placement)
}

// drop ends the tick.
func (p *Poller) drop() {
	t := &p.tick
	if t.of == nil {
		return
	}
	t.cancel()
	t.of, t.shards = nil, nil
	p.queue = queue{}
	p.work.End(t.empty)
}

// leave ends the tick, because the topic is no longer polled.
func (p *Poller) leave(ctx context.Context) {
	p.drop()
	p.tick.end, p.tick.fresh = time.Time{}, nil
	p.work.Keep(ctx, nil)
}

// nodeOf returns the node that holds a shard now.
func (p *Poller) nodeOf(ctx context.Context, at int) *node {
	name := p.topic.Shard(at).Node(ctx)
	if p.nodes[name] == nil {
		p.nodes[name] = &node{name: name, began: p.convoy.Began}
	}
	return p.nodes[name]
}

// slots is how many ends of ticks there are in a tick. Topics whose ticks end together draw
// together.
const slots = 20

// nextEnd returns when the tick that begins now ends. Ticks keep one rhythm, so that the order of
// draws in the fleet stays the same. The first tick is shortened at random, so that scanners
// that start together don't draw together. If the last tick was cut short, this one takes its
// rest.
func (p *Poller) nextEnd(now time.Time, length time.Duration) time.Time {
	end := p.tick.end
	if end.IsZero() {
		end = now.Add(rand.N(length + 1))
	}
	return p.slot(restOf(end, now, length), length)
}

// slot returns the first end of a slot from an instant on, in ticks of that length. If it is
// later, two scanners claim as primaries meanwhile. If it were earlier, none would.
func (p *Poller) slot(from time.Time, length time.Duration) time.Time {
	return slotFrom(p.convoy.Began, from, max(length/slots, 1))
}

// slotFrom returns the first of the ends of slots that follow each other since began, from an
// instant on.
func slotFrom(began, from time.Time, slot time.Duration) time.Time {
	if over := from.Sub(began) % slot; over > 0 {
		return from.Add(slot - over)
	}
	return from
}

// restOf returns when a tick ends that begins now, if the last one should end at end.
func restOf(end, now time.Time, length time.Duration) time.Time {
	if !end.After(now) {
		end = end.Add(length)
	}
	if left := end.Sub(now); left <= 0 || left > length {
		return now.Add(length)
	}
	return end
}

// polled is one shard that a poller polls in a tick.
type polled struct {
	shard int
	node  *node // that holds it, as last known
	// next is when to look at the shard, or else to claim from it, by this process's clock.
	// Zero means not before a wake-up.
	next time.Time
	// unseen: the shard is looked at then, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero means that it isn't known.
	heard, now time.Time
	rest       time.Time // no claim before it, so that more comes due meanwhile
	// Until other another scanner is the primary, and until two there are two others that drew before
	// this one. Both are by this process's clock; zero: there is none.
	other, two time.Time
	tick       time.Duration
	retry      retry.Backoff
	// busy means that a look or a claim is under way. woken means that meanwhile a task with
	// this score became the earliest. again means that it must be looked at after the call.
	busy, woken, again bool
	score              int64

	place int  // in the queue's later
	due   bool // it is in the queue's due
}

// When implements wake.Timed.
func (a *polled) When() time.Time { return a.next }

// Place implements wake.Timed.
func (a *polled) Place() *int { return &a.place }

// Grace is how long a scanner leaves due tasks to the primary of the shard, at least. The primary
// rests for less than that between two claims. While Redis takes long to answer, the primary needs
// longer, and the scanner waits up to mostGrace.
const (
	Grace     = 15 * time.Millisecond
	mostGrace = 250 * time.Millisecond
)

// Looks whether the primary has claimed a task begin at the ends of slots. So the looks of many topics
// go to Redis together.
const lookSlot = shard.ConvoySlot

func (n *node) grace() time.Duration { return min(max(Grace, restFactor*n.took), mostGrace) }

// A scanner spends only a share of its time on claims of a shard. If a claim took d, the next
// one begins no sooner than restFactor x d after the beginning of the first. The limit of that
// time is mostRest. So when Redis and the machine are busier, more tasks share a claim. When
// they aren't, tasks don't wait. Network cards moderate their interrupts in this way. See
// docs/adr/0014.
const (
	restFactor = 4
	mostRest   = 5 * time.Millisecond
)

// at returns when Redis's clock will show an instant, by this process's clock.
func (a *polled) at(instant time.Time) time.Time { return a.heard.Add(instant.Sub(a.now)) }

// turn returns when to claim a task that is due at an instant, by this process's clock. That is
// when it is due, but not before the shard's rest is over. If another scanner is the primary,
// it has grace more time, and has most likely claimed the task then. So look reports that a look
// comes before the claim. While two others come first, they have a tick more time for a task that
// isn't overdue.
func (a *polled) turn(instant time.Time) (t time.Time, look bool) {
	t = a.at(instant)
	if t.Before(a.other) {
		if t = t.Add(a.node.grace()); t.After(a.heard) {
			if left := a.two.Sub(t); left > 0 {
				t = t.Add(min(left, a.tick))
			}
			t = slotFrom(a.node.began, t, lookSlot)
		}
		look = t.Before(a.other) && t.After(a.heard)
		if t.After(a.other) {
			t = a.other
		}
	}
	if t.Before(a.rest) {
		t = a.rest
	}
	return t, look
}

// learn notes when the shard needs attention next; zero means not before a wake-up. next is by
// Redis's clock, which showed now when the answer was heard.
func (a *polled) learn(heard, now, next time.Time) {
	a.heard, a.now, a.unseen, a.next = heard, now, false, time.Time{}
	a.retry.Reset()
	if !next.IsZero() {
		a.next, a.unseen = a.turn(next)
	}
}

// claimed notes the answer to a claim. A scanner whose claim found a task is the primary then. The
// shard doesn't rest if the claim left something due.
func (a *polled) claimed(answer Answer) {
	a.rest = time.Time{}
	switch {
	case !answer.Polled.IsZero():
		a.other = answer.Heard.Add(answer.Polled.Sub(answer.Now))
	case answer.Found > 0:
		a.other = time.Time{}
	}
	if answer.Polled.IsZero() && answer.Next.After(answer.Now) {
		a.rest = answer.Asked.Add(min(restFactor*answer.Heard.Sub(answer.Asked), mostRest))
	}
	a.learn(answer.Heard, answer.Now, answer.Next)
}

// fail backs off from the shard. The look or claim that failed is repeated after pause.
func (a *polled) fail(pause time.Duration) {
	a.heard, a.next = time.Time{}, time.Now().Add(pause)
}

// wake notes that a task with this score, in Redis ms, became the earliest. If a call about the
// shard is under way, the score is kept for its end. A shard that wasn't looked at, or that
// failed, has a time already.
func (a *polled) wake(score int64) {
	switch {
	case a.busy:
		if !a.woken || score < a.score {
			a.woken, a.score = true, score
		}
	case a.heard.IsZero():
	default:
		if next, look := a.turn(time.UnixMilli(score)); a.next.IsZero() || next.Before(a.next) {
			a.next, a.unseen = next, look
		}
	}
}

// ended notes that a call about the shard is over. If it must be looked at again, that is now,
// or after the pause of a failed call.
func (a *polled) ended() {
	a.busy = false
	if a.woken {
		a.woken = false
		a.wake(a.score)
	}
	if a.again && !a.heard.IsZero() {
		a.unseen, a.next = true, time.Now()
	}
	a.again = false
}

// queue holds the shards of a tick that have a time and aren't busy. Those whose time has come
// are served first come, first served. So a shard with an old backlog doesn't delay the others.
type queue struct {
	later wake.ByTime[*polled]
	due   []*polled
}

// put puts a shard in its place after its time has changed.
func (q *queue) put(a *polled) {
	if a.busy || a.due || a.next.IsZero() {
		q.later.Remove(a)
	} else {
		q.later.Put(a)
	}
}

// ripen takes out the unseen shards whose time has come, by node. The others become due.
func (q *queue) ripen(now time.Time) (unseen map[*node][]*polled) {
	for a, ripe := q.later.Take(now); ripe; a, ripe = q.later.Take(now) {
		if a.due = !a.unseen; a.due {
			q.due = append(q.due, a)
			continue
		}
		if unseen == nil {
			unseen = map[*node][]*polled{}
		}
		unseen[a.node] = append(unseen[a.node], a)
	}
	return unseen
}

// take takes out the due shard that waits longest, of those that may be served; nil if there is
// none.
func (q *queue) take(may func(*polled) bool) *polled {
	i := slices.IndexFunc(q.due, may)
	if i < 0 {
		return nil
	}
	a := q.due[i]
	a.due = false
	q.due = slices.Delete(q.due, i, i+1)
	return a
}
