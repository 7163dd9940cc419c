package poll

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
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
	took   time.Duration
	err    error
}

// fits reports whether the result of a draw can be used.
func (d *drawn) fits(now Demand) bool {
	return now.Tick == d.demand.Tick && now.Fixed == d.demand.Fixed && now.Scanned == d.Placement.Scanned()
}

// primary returns until when a shard has another primary, by this process's clock; zero: it has
// none. The first of the scanners that drew a shard is its primary until its tick ends. So this
// scanner comes after all that drew before it.
func (d *drawn) primary(at int) (until time.Time) {
	for _, other := range d.Others {
		if balance.Names(other.First, other.N, d.Placement.Scanned(), at) && other.Until.After(until) {
			until = other.Until
		}
	}
	if until.IsZero() {
		return until
	}
	return d.began.Add(d.took).Add(until.Sub(d.Now))
}

// following returns the shards of the next tickets, as if they had been drawn.
func (d *drawn) following() *drawn {
	next := *d
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
	request := shard.Draw{Instance: p.instance, N: d.Tickets, Stay: one.end.Sub(now)}
	p.convoy.Draw(ctx, p.topic, request, func(answer shard.Drawn, err error) {
		if one.took, one.err = time.Since(one.began), err; err == nil {
			one.Drawn, one.shards = answer, balance.Shards(answer.First, d.Tickets, answer.Placement.Scanned())
		}
		p.post(event{drawn: one})
	})
}

// drawn notes the outcome of a draw.
func (p *Poller) drawn(ctx context.Context, d *drawn) {
	t := &p.tick
	if t.drawing, t.took = nil, d.took; d.err != nil {
		t.pause = time.Now().Add(t.retry.Next())
		p.work.Fails(ctx, "", "draw", d.err)
		if shard.Definite(d.err) || errors.Is(d.err, task.ErrUnknownTopic) {
			p.drop()
		}
		return
	}
	t.fresh, t.pause = d, time.Time{}
	t.retry.Reset()
	p.work.Works(ctx, "")
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
	for _, at := range d.shards {
		a := p.busy[at]
		if a == nil {
			a = &polled{shard: at, next: now, unseen: p.work.Claimed(at), other: d.primary(at)}
		}
		a.node, a.again = p.nodeOf(ctx, at), a.busy
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
	p.tick.end = time.Time{}
	p.work.Keep(ctx, nil)
}

// nodeOf returns the node that holds a shard now.
func (p *Poller) nodeOf(ctx context.Context, at int) *node {
	name := p.topic.Shard(at).Node(ctx)
	if p.nodes[name] == nil {
		p.nodes[name] = &node{name: name}
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
	end = restOf(end, now, length)
	slot := max(length/slots, 1)
	if over := end.Sub(p.convoy.Began) % slot; over > 0 {
		return end.Add(slot - over)
	}
	return end
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
