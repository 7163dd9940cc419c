package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/poll"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// polling is the work of a topic's poller.
type polling struct {
	*topic
	outages outages
	movers  []*reshard.Worker
	moving  sync.WaitGroup
}

var _ poll.Work = (*polling)(nil)

// Demand implements poll.Work. A topic isn't polled before there is a placement, and while it
// sleeps.
func (t *polling) Demand() (d poll.Demand) {
	s := t.inForce.Settings()
	d = poll.Demand{Tick: s.Tick, Scanned: t.scanned(), Fixed: s.Workers, Paused: t.inForce.Paused()}
	if p, _ := t.resharder.Known(); p.Epoch > 0 && (p.Phase != shard.Stable || !t.asleep()) {
		d.Claims, d.Tickets = balance.Scale(s.Workers, d.Scanned, t.live())
		d.Longer = p.Phase == shard.Stable && d.Tickets == d.Scanned
	}
	t.metrics.Workers.Set(float64(d.Claims))
	return d
}

// Drawn implements poll.Work. A draw comes in each tick. So the placement of a topic that is polled
// needs no other look, unless it differs from the known one.
func (t *polling) Drawn(p shard.Placement) {
	if t.resharder.Learn(p) {
		t.inForce.Changed.Fire()
	}
}

// Begin implements poll.Work. It moves misplaced tasks of the shards during the tick.
func (t *polling) Begin(life, tick context.Context, shards []int, p shard.Placement) {
	if t.resharder.Rests(shards, p) {
		return
	}
	n := 1
	if p.Phase == shard.Migrating {
		n = t.workers()
	}
	for len(t.movers) < n {
		t.movers = append(t.movers, reshard.NewWorker(fmt.Sprintf("%s/%d", t.instance, len(t.movers))))
	}
	i := 0
	for part := range slices.Chunk(shards, (len(shards)+n-1)/n) {
		mover := t.movers[i]
		t.moving.Go(func() { t.resharder.Move(life, tick, mover, part, p) })
		i++
	}
}

// End implements poll.Work.
func (t *polling) End(empty bool) { t.metrics.tick(empty) }

// Claimed implements poll.Work. A topic that began asleep claims only due tasks. Otherwise a
// scanner with many topics would claim from all their shards when they wake.
func (t *polling) Claimed(at int) bool {
	worked, known := t.health.lastClaim(at)
	return worked || !known && t.beganAsleep
}

// Fails implements poll.Work. node is "" for a call that belongs to no shard.
func (t *polling) Fails(ctx context.Context, node, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	t.health.errors(operation)
	if errors.Is(err, task.ErrUnknownTopic) {
		t.Drawn(shard.Placement{})
	} else {
		t.outages.begin(ctx, t.topic, node, operation, err)
	}
}

// Works implements poll.Work.
func (t *polling) Works(ctx context.Context, node string) {
	t.outages.end(ctx, t.topic, func(silent string) bool { return silent == node })
}

// Keep implements poll.Work.
func (t *polling) Keep(ctx context.Context, nodes map[string]bool) {
	t.outages.end(ctx, t.topic, func(silent string) bool { return nodes == nil || silent != "" && !nodes[silent] })
}

// outage is why Redis doesn't serve a topic.
type outage struct {
	kind problem.Kind
	why  string
}

// outages are the nodes that don't serve a topic.
type outages struct {
	mu     sync.Mutex
	silent map[string]bool
}

// begin records why a node doesn't serve the topic, and logs it once for each outage.
func (o *outages) begin(ctx context.Context, t *topic, node, operation string, err error) {
	why := connect.Advised("redis", err)
	o.mu.Lock()
	defer o.mu.Unlock()
	t.health.outage.Store(&outage{kindOfRedis(err), why})
	if o.silent[node] {
		return
	}
	if o.silent == nil {
		o.silent = map[string]bool{}
	}
	o.silent[node] = true
	t.log.WarnContext(ctx, "redis does not serve this topic", "operation", operation, "error", why)
}

// end removes the outages of some nodes.
func (o *outages) end(ctx context.Context, t *topic, ends func(node string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node := range o.silent {
		if !ends(node) {
			continue
		}
		if delete(o.silent, node); len(o.silent) == 0 {
			t.health.outage.Store(nil)
		}
		t.log.InfoContext(ctx, "redis serves this topic again")
	}
}
