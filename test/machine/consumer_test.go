package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// window is how long consumers remember: longer than a task is ever late here, so
// that a handler's own past outlives the notes of producers.
const window = 240 * time.Hour

// failed is why a consumer stores a task again.
const failed = "handler failed"

// process is one in which consumers run: what it knows of the placement grows old.
func (m *machine) process() (*shard.Caller, error) {
	s, err := shard.New(m.rdb, prefix)
	if err != nil {
		return nil, err
	}
	return s.Caller(topic), nil
}

// message lies in the queue, or with a consumer.
type message struct {
	task.Task
	version *operation // that its record had
	root    int64      // due of the delivery that its chain began with
	sent    int        // the step at which it was
	held    bool       // by a consumer whose connection lives
}

func (d *message) String() string {
	return fmt.Sprintf("%v, attempt %d due %+d ms", d.version, d.Attempt, d.Due.UnixMilli()-began)
}

func (d *message) delivered() shard.Delivered {
	return shard.Delivered{ID: d.ID, Due: d.Due.UnixMilli(), Scheduled: d.Scheduled.UnixMilli()}
}

// enqueue is what the broker does with a message of a version that was claimed.
func (m *machine) enqueue(t task.Task, v *operation) {
	root := t.Due.UnixMilli()
	if v.verb == again {
		root = v.rootDue
	}
	m.queue = append(m.queue, &message{Task: t, version: v, root: root, sent: m.steps})
}

// end is how a handler ends.
type end string

const (
	succeeds end = "succeeds"
	fails    end = "fails"
	parks    end = "fails for the last time"
	drops    end = "drops it"
	steps    end = "asks for a next step"
)

// consume starts a handler on a message.
func (m *machine) consume(t *rapid.T) {
	waiting := m.waiting()
	if len(waiting) == 0 {
		t.Skip("the queue is empty")
	}
	var idle []int
	for n := range consumers {
		if m.count(fmt.Sprint("consumer ", n)) == 0 {
			idle = append(idle, n)
		}
	}
	if len(idle) == 0 {
		t.Skip("all are busy")
	}
	n := rapid.SampledFrom(idle).Draw(t, "consumer")
	d := rapid.SampledFrom(waiting).Draw(t, "message")
	h := rapid.SampledFrom([]end{fails, fails, fails, steps, parks, drops, succeeds}).Draw(t, "handler")
	after := rapid.SampledFrom([]time.Duration{0, 7 * time.Millisecond, 5 * time.Second, time.Hour}).Draw(t, "after")
	c := m.processes[n]
	if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
		c.Assume(rapid.SampledFrom(m.past).Draw(t, "placement"))
	}
	name := fmt.Sprintf("consumer %d: %v, the handler %s", n, d, h)
	m.launch(t, name, func(ctx context.Context, a *actor) {
		d.held, a.message = true, d
		m.broken = m.handle(ctx, a, c, d, h, after)
	})
}

// waiting are the messages that no consumer has.
func (m *machine) waiting() (free []*message) {
	for _, d := range m.queue {
		if !d.held {
			free = append(free, d)
		}
	}
	return free
}

// cut ends a consumer's connection to the broker while its handler goes on: the
// message is delivered to another one, and the ack is lost.
func (m *machine) cut(t *rapid.T) {
	var busy []*actor
	for _, a := range m.actors {
		if a.message != nil {
			busy = append(busy, a)
		}
	}
	if len(busy) == 0 {
		t.Skip("nobody handles anything")
	}
	a := rapid.SampledFrom(busy).Draw(t, "consumer")
	m.note("%s loses its connection", a.name)
	m.giveBack(a)
}

// giveBack puts the message of a consumer that died, or lost its connection, back
// into the queue.
func (m *machine) giveBack(a *actor) {
	if a.message != nil {
		a.message.held, a.message = false, nil
	}
}

// handle does what package consumer does with one delivery, in its order.
func (m *machine) handle(ctx context.Context, a *actor, c *shard.Caller, d *message, h end, after time.Duration) error {
	standing, err := c.Recall(ctx, d.delivered(), window)
	if err != nil {
		return err
	}
	if standing == shard.Run {
		if err := m.run(d, m.steps, m.link.now); err != nil {
			return err
		}
		a.step("the handler")
		if err := m.conclude(ctx, a, c, d, h, after); err != nil {
			return err
		}
	}
	a.step(fmt.Sprintf("ack after %q", standing))
	m.ack(a)
	return nil
}

// ack ends a delivery, unless the consumer's connection is gone.
func (m *machine) ack(a *actor) {
	if d := a.message; d != nil {
		m.queue = slices.DeleteFunc(m.queue, func(q *message) bool { return q == d })
		a.message = nil
	}
}

// conclude stores what follows a delivery, and notes that it was done with unless
// it is parked.
func (m *machine) conclude(ctx context.Context, a *actor, c *shard.Caller, d *message, h end, after time.Duration) error {
	if h == succeeds || h == drops {
		d.version.origin().finished = true
	} else {
		switch m.link.order {
		case ackFirst:
			m.ack(a)
		case doneFirst:
			if err := c.Done(ctx, d.ID, d.Due.UnixMilli(), window); err != nil {
				return err
			}
		}
		if stored, err := m.follow(ctx, a, c, d, h, after); err != nil || stored && h == parks {
			return err
		}
	}
	if err := c.Done(ctx, d.ID, d.Due.UnixMilli(), window); err != nil {
		return err
	}
	m.ended(d, m.link.now)
	return nil
}

// follow stores what follows a delivery, unless its chain is over.
func (m *machine) follow(ctx context.Context, a *actor, c *shard.Caller, d *message, h end, after time.Duration) (stored bool, err error) {
	var next int64
	if h != parks {
		c.ForgetClock() // its estimate goes by this process's own clock, and wouldn't replay
		now, err := c.Now(ctx)
		if err != nil {
			return false, err
		}
		next = now + after.Milliseconds()
	}
	at, ok, err := c.Follow(ctx, d.delivered(), next, window)
	if err != nil || !ok {
		return false, err
	}
	if err := m.follows(d, next, at); err != nil {
		return false, err
	}
	body, attempts, why := d.Task, d.Attempt, failed
	if h == steps {
		body.Payload, attempts, why = append(slices.Clone(d.Payload), '+'), 0, ""
	}
	a.op = &operation{
		verb: again, id: d.ID, name: string(body.Payload), began: m.steps,
		of: d.version.origin(), rootDue: d.root, sent: d.sent, mayPark: h == parks,
	}
	m.operations = append(m.operations, a.op)
	stored, err = c.Again(ctx, shard.Again{
		ID: d.ID, Due: d.Due.UnixMilli(), Attempt: d.Attempt, Next: at, Park: h == parks, Attempts: attempts,
		Scheduled: d.Scheduled.UnixMilli(), Reason: why, Body: shard.EncodeBody(&body),
	})
	a.op.ended, a.op.crashed = m.steps, true // it is no call that a producer was answered
	return stored, err
}

// handleAll lets healthy consumers handle what is in the queue.
func (m *machine) handleAll() {
	for _, d := range m.waiting() {
		a := start(m.ctx, fmt.Sprintf("healthy consumer: %v", d), func(ctx context.Context, a *actor) {
			d.held, a.message = true, d
			m.broken = m.handle(ctx, a, m.processes[0], d, succeeds, 0)
		})
		m.actors = append(m.actors, a)
		m.finish(a)
	}
}

// memory is what a consumer and a producer were told of the past of an ID, since
// it was forgotten last.
type memory struct {
	done     map[int64]bool // by due of the delivery
	linked   map[int64]bool // dues at which a delivery was to be followed
	recalled int            // the step at which a handler first had it
	newest   int64          // the latest beginning of a chain that a handler had
	since    int            // the step at which it was forgotten
	last     int64          // ms when a consumer last had it, or was done with it
}

func (m *model) memory(id string) *memory {
	if m.memories[id] == nil {
		m.memories[id] = &memory{done: map[int64]bool{}, linked: map[int64]bool{}}
	}
	return m.memories[id]
}

// forget notes that pasts expired, and checks that none did before its window was
// over.
func (m *model) forget(keys []string, step int, now int64) error {
	for _, key := range keys {
		id := strings.TrimSuffix(key[strings.LastIndexByte(key, ':')+1:], "}")
		if last := m.memory(id).last; last > 0 && now < last+window.Milliseconds() {
			return fmt.Errorf("once: the past of %s is forgotten %s after it was used", id, time.Duration(now-last)*time.Millisecond)
		}
		delete(m.memories, id)
		m.memory(id).since = step
	}
	return nil
}

// run checks that a delivery may be handled, which its consumer was told at a step.
func (m *model) run(d *message, step int, now int64) error {
	p := m.memory(d.ID)
	p.last = now
	if p.done[d.Due.UnixMilli()] {
		return fmt.Errorf("once: %v is handled after it was done", d)
	}
	if err := m.superseding(d, step); err != nil {
		return fmt.Errorf("%v is handled after %w", d, err)
	}
	if p.recalled == 0 {
		p.recalled = step
	}
	if d.version.verb == again || !p.linked[d.root] { // else it is taken for what was to follow another one
		p.newest = max(p.newest, d.root)
	}
	return nil
}

func (m *model) ended(d *message, now int64) {
	p := m.memory(d.ID)
	p.done[d.Due.UnixMilli()], p.last = true, now
}

// superseding says what should have ended the chain of a delivery before a step. A
// version's own first delivery may arrive however late.
func (m *model) superseding(d *message, step int) error {
	if d.version.verb != again || d.Due.UnixMilli() == d.root { // or it was parked, and is replayed
		return nil
	}
	return m.chainEnded(d, step)
}

func (m *model) chainEnded(d *message, step int) error {
	p, root := m.memory(d.ID), d.version.origin()
	if p.newest > d.root {
		return fmt.Errorf("a version due at %+d ms was", p.newest-began)
	}
	for _, y := range m.of(d.ID) {
		if y.verb == cancel && y.follows(root) && y.ended < step && y.began > p.since && y.when.from > d.root && m.told(y, root) {
			return fmt.Errorf("%v returned", y)
		}
	}
	return nil
}

// told says that a cancel could see that a consumer may have the task: one had it
// before, or nothing but this version was stored, and its message was out.
func (m *model) told(y, root *operation) bool {
	if p := m.memory(root.id); p.recalled > 0 && p.recalled < y.began {
		return true
	}
	return !slices.ContainsFunc(m.of(root.id), func(z *operation) bool {
		return z != root && z.writes() && z.verb != again && !root.follows(z)
	})
}

// follows checks what a consumer was told of a delivery that it wants to follow at
// next, at the step that is being taken: not if the chain is over, and when.
func (m *machine) follows(d *message, next, at int64) error {
	if err := m.chainEnded(d, m.steps); err != nil {
		return fmt.Errorf("%v may be followed after %w", d, err)
	}
	if next == 0 {
		return nil
	}
	m.memory(d.ID).linked[at] = true
	values, err := m.rdb.HMGet(m.ctx, fmt.Sprintf("%s:past:{%s:%s}", prefix, topic, d.ID), "wished", "wish").Result()
	if err != nil {
		return err
	}
	due, wished, wish := d.Due.UnixMilli(), millis(values[0]), millis(values[1])
	want := next
	if wished > due { // and so by one delivery of a chain
		want = max(wish, wished)
	}
	if at != max(want, due+1) {
		return fmt.Errorf("%v is followed at %+d ms, and not at %+d", d, at-began, want-began)
	}
	for _, y := range m.of(d.ID) {
		unheard := y.verb == reschedule && errors.Is(y.err, task.ErrNotFound) && wished < y.when.from
		if unheard && y.ended > 0 && y.ended < m.steps && y.began > m.memory(d.ID).since {
			return fmt.Errorf("%v is followed at %+d ms, as if %v had not been asked for", d, at-began, y)
		}
	}
	return nil
}

// millis reads a field of a past; 0 if it is not there.
func millis(field any) int64 {
	text, _ := field.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
