package machine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
)

// names are the IDs of the tasks. A check uses one to three, so that all actors work on
// the same ones.
var names = []string{"a", "b", "c"}

const (
	// began is Redis's clock at the start of a check, in ms.
	began = int64(1_800_000_000_000)
	// producers, scanners and movers are how many actors of each kind may run at a time.
	producers, scanners, movers = 3, 2, 3
)

// machine is one check: the actors, the promises made to them, and Redis.
type machine struct {
	model
	ctx         context.Context
	ids         []string
	rdb         *redis.Client
	interceptor *interceptor
	topic       *shard.Topic
	clients     [producers]*producer.Client
	actors      []*actor
	past        []shard.Placement // every placement so far
	last        *snapshot
	steps       int
	named       int // number of actors and requests so far
	trace       []string
	shown       string // Redis's state as the trace last showed it
	broken      error  // a violation that an actor found
	fail        func(error)
}

// newMachine starts a check on an empty Redis.
func newMachine(
	ctx context.Context, rdb *redis.Client, l *interceptor, ids, shards int, fail func(error),
) (*machine, error) {
	m := &machine{model: model{live: map[string]int{}}, ctx: ctx, ids: names[:ids], rdb: rdb, interceptor: l, fail: fail}
	if err := rdb.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	l.now = began
	pipe := rdb.Pipeline()
	pipe.Set(ctx, clockKey, l.now, 0)
	for _, s := range l.scripts {
		pipe.ScriptLoad(ctx, s.text)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	store, err := shard.New(rdb, prefix)
	if err != nil {
		return nil, err
	}
	m.topic = store.Topic(topic)
	l.topic = m.topic
	if _, err := m.topic.Ensure(ctx, shards); err != nil {
		return nil, err
	}
	for i := range m.clients {
		if m.clients[i], err = m.client(); err != nil {
			return nil, err
		}
	}
	m.observe()
	return m, nil
}

func (m *machine) client() (*producer.Client, error) {
	return producer.New(producer.Config{Redis: m.rdb, Prefix: prefix})
}

// close ends the goroutines of the remaining actors.
func (m *machine) close() {
	for _, a := range m.actors {
		for !a.done {
			a.proceed(crash)
		}
	}
}

// violated ends the check if err isn't nil.
func (m *machine) violated(err error) {
	if err != nil {
		m.fail(fmt.Errorf("%w, at the end of:\n%s", err, strings.Join(m.trace, "\n")))
	}
}

func (m *machine) must(err error) {
	if err != nil {
		m.violated(fmt.Errorf("unexpected error: %w", err))
	}
}

func (m *machine) note(format string, args ...any) {
	m.steps++
	m.trace = append(m.trace, fmt.Sprintf("%4d  %+8d ms  ", m.steps, m.interceptor.now-began)+fmt.Sprintf(format, args...))
}

// observe compares the contents of Redis with the promises.
func (m *machine) observe() {
	p, err := take(m.ctx, m.rdb)
	if err != nil {
		m.violated(fmt.Errorf("after step %d: %w", m.steps, err))
	}
	before := m.last
	if before == nil {
		before = p
	}
	if m.last == nil || m.last.placement != p.placement {
		m.past = append(m.past, p.placement)
	}
	m.last = p
	if text := m.describe(p); text != m.shown {
		m.shown = text
		m.trace = append(m.trace, "                     -> "+text)
	}
	m.violated(m.model.observe(p, before, m.steps, m.interceptor.now))
}

// describe returns a snapshot as one line of text.
func (m *machine) describe(p *snapshot) string {
	text := fmt.Sprintf("%v:", p.placement)
	for _, c := range p.copies {
		name := "?"
		if x := m.version(c.Op); x != nil {
			name = x.name
		}
		text += fmt.Sprintf(" %s/%d %s %s", c.ID, c.shard, name, c.state())
		if c.state() != "parked" {
			text += fmt.Sprintf(" %+d", int64(math.Abs(c.score))-began)
		}
		if p.handled[c.shard][c.ID] {
			text += " (handled)"
		}
	}
	return text
}

// launch starts an actor and lets it send some commands.
func (m *machine) launch(t *rapid.T, name string, program func(ctx context.Context, a *actor)) {
	m.note("%s begins", name)
	a := start(m.ctx, name, program)
	m.actors = append(m.actors, a)
	m.stopped(a) // commands of a pipeline before the first stop have already run
	m.some(t, a)
}

// proceed lets an actor execute one command.
func (m *machine) proceed(a *actor, v outcome) {
	m.note("%s: %v%s", a.name, v, a.at)
	if a.op != nil && v == lose && a.op.writes() {
		a.op.excused = true
	}
	a.proceed(v)
	m.stopped(a)
}

// stopped records what an actor did, after it reached its next command or its end.
func (m *machine) stopped(a *actor) {
	m.violated(m.broken)
	if a.done {
		m.actors = slices.DeleteFunc(m.actors, func(b *actor) bool { return a == b })
		if o := a.op; o != nil && o.ended == 0 {
			o.ended, o.crashed = m.steps, true
		}
	}
	m.observe()
}

func (m *machine) finish(a *actor) {
	for !a.done {
		m.proceed(a, send)
	}
}

func (m *machine) count(kind string) (n int) {
	for _, a := range m.actors {
		if strings.HasPrefix(a.name, kind) {
			n++
		}
	}
	return n
}

// anyActor draws a running actor.
func (m *machine) anyActor(t *rapid.T) *actor {
	if len(m.actors) == 0 {
		t.Skip("no actor is running")
	}
	return m.actors[rapid.IntRange(0, len(m.actors)-1).Draw(t, "actor")]
}

// advance moves Redis's clock forward, and deletes the keys that expire by then.
func (m *machine) advance(by time.Duration) {
	m.interceptor.now += by.Milliseconds()
	m.note("the clock advances by %s", by)
	const expire = `
redis.call('SET', KEYS[1], ARGV[1])
for _, key in ipairs(redis.call('KEYS', 'm:claim:*')) do
  if -string.match(redis.call('GET', key), ' (%S+)') <= tonumber(ARGV[1]) then redis.call('DEL', key) end
end`
	m.must(ignoreNil(m.rdb.Do(m.ctx, "eval", expire, 1, clockKey, m.interceptor.now).Err()))
	m.observe()
}

func ignoreNil(err error) error {
	if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return nil
	}
	return err
}

// property is the property that rapid checks: any interleaving keeps the promises, and
// afterwards a healthy fleet delivers everything.
func property(ctx context.Context, t *rapid.T, rdb *redis.Client, l *interceptor, fail func(error)) {
	m, err := newMachine(ctx, rdb, l, rapid.IntRange(1, len(names)).Draw(t, "tasks"),
		rapid.IntRange(1, most).Draw(t, "shards"), fail)
	if err != nil {
		fail(err)
	}
	defer m.close()
	if rapid.IntRange(0, 3).Draw(t, "begin") > 0 {
		m.prelude(t)
	}
	t.Repeat(map[string]func(*rapid.T){
		"produce":         m.produce,
		"produce more":    m.produce,
		"a scanner polls": m.poll,
		"move":            m.move,
		"change":          m.change,
		"step":            m.step,
		"go on":           m.goOn,
		"go on again":     m.goOn,
		"go on and on":    m.goOn,
		"break":           m.breakDown,
		"let time pass":   m.pass,
		"operate":         m.operate,
	})
	m.drain(t)
}

// prelude begins a check in a state where many things can go wrong. Tasks are stored, and
// a change that moves some of them has begun.
func (m *machine) prelude(t *rapid.T) {
	for range m.ids {
		m.produce(t)
	}
	for len(m.actors) > 0 {
		m.finish(m.actors[0])
	}
	m.change(t)
	for len(m.actors) > 0 {
		m.finish(m.actors[0])
	}
}

// TestPromises checks promises 1 to 7 under any interleaving that rapid draws.
func TestPromises(t *testing.T) {
	rdb := client(t, none)
	rapid.Check(t, func(rt *rapid.T) {
		property(t.Context(), rt, rdb.Client, rdb.interceptor, func(err error) { rt.Fatal(err) })
	})
}
