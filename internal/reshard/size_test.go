package reshard

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// largest records the most bytes that one request sent or that one answer brought.
type largest struct{ bytes atomic.Int64 }

func (l *largest) note(r faults.Request) {
	sent, heard := 0, 0
	for _, cmd := range r.Commands {
		sent += bytesIn(cmd.Args())
		if script, ok := cmd.(*redis.Cmd); ok {
			heard += bytesIn(script.Val())
		}
	}
	for n := int64(max(sent, heard)); ; {
		before := l.bytes.Load()
		if n <= before || l.bytes.CompareAndSwap(before, n) {
			return
		}
	}
}

// bytesIn returns the length of all texts in a request or an answer.
func bytesIn(value any) (n int) {
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case []any:
		for _, one := range v {
			n += bytesIn(one)
		}
	}
	return n
}

// narrowed returns the address of a proxy to Redis. It passes rate bytes a second on each
// connection, each way.
func narrowed(t *testing.T, addr string, rate int) string {
	t.Helper()
	proxy := faults.Proxy(t, faults.Local, addr)
	for _, stream := range []string{"downstream", "upstream"} {
		faults.Toxic(t, proxy, stream, "bandwidth", stream, map[string]any{"rate": rate / 1000})
	}
	return proxy.Listen
}

// TestAChangeOfMMovesLargeTasksOverANarrowNetwork: no request or answer is larger than
// the budget of an export and one task. The change ends.
func TestAChangeOfMMovesLargeTasksOverANarrowNetwork(t *testing.T) {
	t.Parallel()
	const tasks, size, budget = 16, 1 << 20, 1 << 20
	addr, prefix := servertest.Redis(t)
	b := fixtureOn(t, addr, prefix)
	var ids []string
	for i := range tasks {
		ids = append(ids, strconv.Itoa(i))
		b.putBody(task.In(time.Hour), make([]byte, size), ids[i])
	}
	b.migrate()
	far := fixtureOn(t, narrowed(t, addr, 2_000_000), prefix)
	far.p = b.p
	far.resharder.view.learnPlacement(far.p)
	met := &largest{}
	faults.After(far.rdb, met.note)
	all := []*mover{far.resharder.newMover("me/0", 0, far.p), far.resharder.newMover("me/0", 1, far.p)}
	far.resharder.showAll(t.Context(), all, far.p)
	check.Until(t, "the change to end", func() bool {
		if m := nextOf(all); m == nil {
			far.reconcile()
		} else if err := m.step(t.Context()); err != nil {
			t.Log(err)
		}
		p, err := b.topic.Placement(t.Context())
		check.OK(t, err)
		b.p = p
		return p.Phase == shard.Stable
	})
	for _, id := range ids {
		if !b.in(b.p.New(id), id) {
			t.Errorf("task %s is not in its place", id)
		}
	}
	if most := int64(budget + size + 64<<10); met.bytes.Load() > most {
		t.Errorf("one request or answer took %d bytes, want at most %d", met.bytes.Load(), most)
	}
}

// TestAStepThatLeftSomeDoesNotEndItsPass: tasks that an export leaves for the next step
// are still here, and the shard isn't clean.
func TestAStepThatLeftSomeDoesNotEndItsPass(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	ids := b.misplaced(3)
	b.putBody(task.In(time.Hour), make([]byte, 2<<20), ids...)
	m := b.resharder.newMover("me/0", 0, b.p)
	b.resharder.showAll(t.Context(), []*mover{m}, b.p)
	here := func() (n int) {
		for _, id := range ids {
			if b.in(0, id) {
				n++
			}
		}
		return n
	}
	for left := len(ids); left > 0; left-- {
		if n := here(); n > left || m.state == moverOff {
			t.Fatalf("%d tasks are here, want at most %d; the mover's state is %d", n, left, m.state)
		}
		if m.pass.Count > 1 {
			t.Fatalf("pass %d has begun with %d tasks left", m.pass.Count, left)
		}
		check.OK(t, m.step(t.Context()))
	}
	if n := here(); n != 0 {
		t.Errorf("%d tasks are here in the end", n)
	}
}

// TestAnExportThatWasLateIsFollowedByALongerOne: leases grow up to a minute, and shrink
// again when shorter ones are enough.
func TestAnExportThatWasLateIsFollowedByALongerOne(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	id := b.misplaced(1)[0]
	b.put(task.In(time.Hour), id)
	m := b.resharder.newMover("me/0", 0, b.p)
	for _, want := range []time.Duration{2 * moveLease, 4 * moveLease, 8 * moveLease, moveLeaseMost, moveLeaseMost} {
		request := m.newExport([]string{id})
		request.Lease = moveMargin // leaves no time for the import
		export, err := m.from.Export(t.Context(), b.p, request)
		check.OK(t, err)
		if _, err := m.handOver(t.Context(), export); !errors.Is(err, shard.ErrLate) {
			t.Fatalf("an import at the end of its export: %v", err)
		}
		if next := m.newExport(nil); next.Lease != want || next.Soon != 2*want {
			t.Errorf("the next export lasts %s and leaves what is due in %s, want %s and twice that", next.Lease, next.Soon,
				want)
		}
	}
	for range 5 {
		m.of.exports.took(m.of.exports.now(), time.Second)
	}
	if lease := m.newExport(nil).Lease; lease != moveLease {
		t.Errorf("exports last %s in the end, want %s", lease, moveLease)
	}
}
