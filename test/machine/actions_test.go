package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// produce starts a call of an idle producer.
func (m *machine) produce(t *rapid.T) {
	var idle []int
	for n := range producers {
		if m.count(fmt.Sprint("producer ", n)) == 0 {
			idle = append(idle, n)
		}
	}
	if len(idle) == 0 {
		t.Skip("all are busy")
	}
	n := rapid.SampledFrom(idle).Draw(t, "producer")
	name := fmt.Sprint("producer ", n)
	m.named++
	o := &operation{
		verb: rapid.SampledFrom([]verb{schedule, schedule, ifAbsent, reschedule, cancel, get}).Draw(t, "verb"),
		id:   rapid.SampledFrom(m.ids).Draw(t, "id"), name: fmt.Sprint("v", m.named),
		seen: map[taskView]bool{},
	}
	if o.verb == ifAbsent && m.named%4 < 2 {
		o.verb = ifPresent
	}
	o.amqp = o.scheduled() && m.named%3 == 0
	o.recurs = o.scheduled() && m.named%3 == 1
	if o.verb == cancel && m.named%8 == 5 {
		o.verb, o.id, o.group = cancelGroup, "", "g"
	} else if o.scheduled() && !o.amqp && m.named%2 == 0 {
		o.group = "g"
	}
	o.when = m.drawWhen(t)
	o.began = m.steps + 1
	m.operations = append(m.operations, o)
	m.watch(m.last)
	c := m.clients[n]
	m.launch(t, fmt.Sprintf("%s, %v", name, o), func(ctx context.Context, a *actor) {
		a.op = o
		m.call(ctx, c, o)
		o.ended = m.steps
	})
}

// drawWhen draws a due time: in the past, now, soon or far in the future.
func (m *machine) drawWhen(t *rapid.T) request {
	millis := rapid.SampledFrom([]int64{0, -5000, 3, 2000, 12_000, 86_400_000}).Draw(t, "in")
	if rapid.Bool().Draw(t, "absolute") {
		return request{millis: m.interceptor.now + millis, from: m.interceptor.now}
	}
	return request{relative: true, millis: millis, from: m.interceptor.now}
}

func (m *machine) call(ctx context.Context, c *producer.Client, o *operation) {
	when := producer.At(time.UnixMilli(o.when.millis))
	switch {
	case o.when.relative && o.when.millis == 0:
		when = producer.Now()
	case o.when.relative:
		when = producer.In(time.Duration(o.when.millis) * time.Millisecond)
	}
	var due time.Time
	switch o.verb {
	case schedule, ifAbsent, ifPresent:
		// The machine stops each actor before its own commands. Calls of Schedule may
		// share a command that another goroutine sends; calls of ScheduleMany never do.
		request := producer.Request{Topic: topic, ID: o.id, When: when, Payload: []byte(o.name),
			Group: o.group, IfAbsent: o.verb == ifAbsent, IfPresent: o.verb == ifPresent}
		if o.recurs {
			request.Recurrence = &task.Recurrence{Every: between, Each: true, Runs: runsEach}
		}
		r := c.ScheduleMany(ctx, []producer.Request{request})[0]
		due, o.err = r.Due, r.Err
	case reschedule:
		due, o.err = c.Reschedule(ctx, topic, o.id, when)
	case cancelGroup:
		_, o.err = c.CancelGroup(ctx, topic, o.group)
	case cancel:
		o.err = c.Cancel(ctx, topic, o.id)
	case get:
		var s producer.Stored
		s, o.err = c.Get(ctx, topic, o.id)
		o.got = taskView{string(s.Payload), s.Due.UnixMilli(), s.State}
	}
	o.due = due.UnixMilli()
}

// poll starts a scanner on a shard.
func (m *machine) poll(t *rapid.T) {
	if m.count("scanner") == scanners {
		t.Skip("all are busy")
	}
	s := scan{
		shard: m.anyShard(t, func(stored) bool { return true }), limit: rapid.IntRange(1, 3).Draw(t, "limit"),
		publishResult: rapid.SampledFrom([]publishResult{
			confirmed, confirmed, unsent, unknown, returned, refusedForGood,
		}).Draw(t, "fate"),
	}
	m.named++
	s.name = fmt.Sprint("scanner ", m.named)
	m.launch(t, fmt.Sprintf("%s at shard %d, messages %v", s.name, s.shard, s.publishResult),
		func(ctx context.Context, a *actor) { m.broken = m.scan(ctx, a, s) })
}

// anyShard draws a shard, most often one that holds a copy for which matters is true.
func (m *machine) anyShard(t *rapid.T, matters func(stored) bool) int {
	var at []int
	for _, c := range m.last.copies {
		if matters(c) {
			at = append(at, c.shard)
		}
	}
	if len(at) > 0 && rapid.IntRange(0, 3).Draw(t, "where") > 0 {
		return rapid.SampledFrom(at).Draw(t, "shard")
	}
	return rapid.IntRange(0, m.last.placement.Scanned()-1).Draw(t, "shard")
}

// move starts a mover on a shard.
func (m *machine) move(t *rapid.T) {
	if m.count("mover") == movers || m.last.placement.Phase == shard.Stable {
		t.Skip("all are busy, or nothing is to be moved")
	}
	m.named++
	v := &mover{
		machine: m, name: fmt.Sprint("mover ", m.named),
		shard: m.anyShard(t, func(c stored) bool { return m.last.placement.New(c.ID) != c.shard }),
		page:  rapid.IntRange(1, 4).Draw(t, "page"),
	}
	if rapid.Bool().Draw(t, "leave what is due soon") {
		v.soon = moveSoon
	}
	m.launch(t, fmt.Sprintf("%s at shard %d", v.name, v.shard), func(ctx context.Context,
		_ *actor) {
		m.broken = unlessMoved(v.run(ctx))
	})
}

// change starts a change of the shard count.
func (m *machine) change(t *rapid.T) {
	if m.last.placement.Phase == shard.Migrating || m.count("reconciler") == 2 {
		t.Skip("a change is under way")
	}
	to := rapid.SampledFrom(m.desiredCounts()).Draw(t, "shards")
	m.named++
	m.launch(t, fmt.Sprintf("reconciler %d, for %d shards", m.named, to), func(ctx context.Context, _ *actor) {
		p, err := m.topic.Placement(ctx)
		if err == nil {
			_, err = m.topic.Begin(ctx, p, to)
		}
		m.broken = err
	})
}

// desiredCounts returns the shard counts that make a task move.
func (m *machine) desiredCounts() (counts []int) {
	p := m.last.placement
	for to := range most {
		moves := func(id string) bool { return p.New(id) != shard.Place(id, to+1) }
		if slices.ContainsFunc(m.ids, moves) {
			counts = append(counts, to+1)
		}
	}
	return counts
}

// unlessMoved returns nil for the errors that tell a mover to stop, and err otherwise.
func unlessMoved(err error) error {
	var moved *shard.MovedError
	if errors.As(err, &moved) || errors.Is(err, shard.ErrLate) {
		return nil
	}
	return err
}

// step lets an actor send its next command.
func (m *machine) step(t *rapid.T) { m.proceed(m.anyActor(t), send) }

// goOn lets an actor send several commands in a row.
func (m *machine) goOn(t *rapid.T) { m.some(t, m.anyActor(t)) }

func (m *machine) some(t *rapid.T, a *actor) {
	for range rapid.IntRange(0, 12).Draw(t, "commands") {
		if !a.done {
			m.proceed(a, send)
		}
	}
}

// breakDown injects a fault: an actor dies, a reply is lost, or Redis forgets its
// scripts.
func (m *machine) breakDown(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "what") == 4 {
		m.flush()
		return
	}
	a := m.anyActor(t)
	m.proceed(a, rapid.SampledFrom([]outcome{crash, leave, lose, lose}).Draw(t, "how"))
	if a.done && a.op != nil && rapid.Bool().Draw(t, "the process with it") {
		var err error
		for i := range m.clients {
			if fmt.Sprint("producer ", i) == a.name[:len("producer 0")] {
				m.clients[i], err = m.client()
			}
		}
		m.must(err)
	}
}

// pass lets time pass. An export can be imported for 4 s and expires after 5 s; a claim
// expires after 30 s.
func (m *machine) pass(t *rapid.T) {
	m.advance(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 20 * time.Millisecond, 4200 * time.Millisecond, 6 * time.Second, 6 * time.Second,
		31 * time.Second, 31 * time.Second, 24 * time.Hour,
	}).Draw(t, "by"))
}

// flush empties Redis's cache of scripts.
func (m *machine) flush() {
	m.note("scripts flushed")
	m.must(m.rdb.ScriptFlush(m.ctx).Err())
}

// operate replays parked tasks as an operator would, or sends a script with an old
// placement.
func (m *machine) operate(t *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		m.stats()
	case 1:
		m.replay(t)
	default:
		m.stale(t)
	}
}

// replay makes the parked tasks of one shard due.
func (m *machine) replay(t *rapid.T) {
	at := m.anyShard(t, func(c stored) bool { return c.state() == task.Parked })
	m.note("replay in shard %d", at)
	m.replayIn(at)
}

func (m *machine) replayIn(at int) {
	parked, err := m.topic.Shard(at).Parked().Next(m.ctx)
	m.must(err)
	for _, r := range parked {
		n, err := m.topic.Shard(at).Replay(m.ctx, r.ID)
		m.must(err)
		if n != 1 {
			m.violated(fmt.Errorf("promise 7: %s is parked in shard %d, and not replayed", r.ID, at))
		}
		m.version(r.Op).parked = false
	}
	m.observe()
}

// stale sends a script with an old placement to a shard that has seen a newer one. The
// shard must refuse it and change nothing.
func (m *machine) stale(t *rapid.T) {
	at := rapid.IntRange(0, most-1).Draw(t, "shard")
	var old []shard.Placement
	for _, p := range m.past {
		if p.Epoch < m.last.fences[at] {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		t.Skip("the shard has seen no placement, or only the first one")
	}
	p := rapid.SampledFrom(old).Draw(t, "placement")
	script := rapid.SampledFrom(staleScripts).Draw(t, "script")
	id := rapid.SampledFrom(m.ids).Draw(t, "id")
	m.note("%s of %s in shard %d with placement %v", script.name, id, at, p)
	err := script.send(m, at, p, id)
	var moved *shard.MovedError
	if !errors.As(err, &moved) {
		m.violated(errors.Join(errors.New("promise 6: it was not refused"), err))
	}
	before := m.last
	m.observe()
	if !m.last.same(before) {
		m.violated(errors.New("promise 6: it was refused and changed something"))
	}
}

// stats compares the counted tasks with the stored ones.
func (m *machine) stats() {
	counted, err := m.topic.Stats(m.ctx, most)
	m.must(err)
	want := [most]shard.Stats{}
	for _, c := range m.last.copies {
		w := &want[c.shard]
		w.Pending++
		switch now := float64(m.interceptor.now); {
		case c.score > now && c.state() == task.Parked:
			w.Parked++
		case c.score < -now:
			w.Leased++
		case c.score <= now:
			w.Backlog++
		}
	}
	for s, c := range counted {
		w := want[s]
		if c.Pending != w.Pending || c.Backlog != w.Backlog || c.Leased != w.Leased || c.Parked != w.Parked {
			m.violated(fmt.Errorf("shard %d holds %+v, and is counted as %+v", s, w, c))
		}
	}
}
