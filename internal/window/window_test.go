package window

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

// plenty is a budget that no test here uses up.
const plenty = 1 << 30

// line is a window with its waiters, in the order in which they came, and what they hold.
type line struct {
	*Window
	waiting []*reservation
	claims  []Room    // under way
	tasks   []carried // claimed
	settles []int     // their outcome is known and isn't written to Redis
}

// carried are tasks of a claim, written to RabbitMQ or not.
type carried struct {
	Room
	written bool
}

// crowd holds the topics of a scanner.
type crowd struct {
	*Budget
	t     *rapid.T
	lines []*line
	over  int // bytes by which single tasks exceeded what was free
}

// look notes which waiters were served, and checks the rules. Nobody is served before
// those in front, nor with more than it wants. Nobody is first in line while there is
// room for it.
func (c *crowd) look() {
	total := 0
	for _, l := range c.lines {
		c.served(l)
		held, ahead, bytes := l.sums()
		if held != l.held || ahead != l.ahead || bytes != l.bytes {
			c.t.Fatalf("it says %d tasks, %d ahead, %d bytes; they are %d, %d, %d", l.held, l.ahead, l.bytes, held, ahead, bytes)
		}
		total += bytes
	}
	if got := c.InUse(); got != total {
		c.t.Fatalf("%d bytes are in use, and it says %d", total, got)
	}
	if total > c.limit+c.over {
		c.t.Fatalf("%d bytes are in use, of %d, and %d for tasks that are larger", total, c.limit, c.over)
	}
	for _, l := range c.lines {
		if len(l.waiting) == 0 {
			continue
		}
		c.mu.Lock()
		if r, ok := l.roomFor(l.waiting[0].want); ok {
			c.t.Fatalf("the first in line wants %d and waits, and there is room: %+v", l.waiting[0].want, r)
		}
		c.mu.Unlock()
	}
}

func (c *crowd) served(l *line) {
	var left []*reservation
	for _, me := range l.waiting {
		select {
		case got := <-me.got:
			if len(left) > 0 {
				c.t.Fatalf("served though %d stood in front", len(left))
			}
			if got.Tasks < 1 || got.Tasks > me.want || got.Bytes < 1 || got.Records() < 1 ||
				got.Records() > claimBytes+taskBytes*me.want {
				c.t.Fatalf("asked for %d tasks, got %+v", me.want, got)
			}
			l.claims = append(l.claims, got)
		default:
			left = append(left, me)
		}
	}
	l.waiting = left
}

// sums returns what the window should report.
func (l *line) sums() (held, ahead, bytes int) {
	for _, c := range l.claims {
		held, ahead, bytes = held+c.Tasks, ahead+c.Tasks, bytes+c.Bytes
	}
	for _, t := range l.tasks {
		held, bytes = held+t.Tasks, bytes+t.Bytes
		if !t.written {
			ahead += t.Tasks
		}
	}
	for _, n := range l.settles {
		held += n
	}
	return held, ahead, bytes
}

// pick removes an element from a list.
func pick[T any](t *rapid.T, from *[]T) T {
	if len(*from) == 0 {
		t.Skip("there is none")
	}
	at := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
	one := (*from)[at]
	*from = append((*from)[:at:at], (*from)[at+1:]...)
	return one
}

// TestWindowsServeInOrderWhatThereIsRoomFor: several topics share a budget. Tasks are
// claimed, written, resolved and settled in any order.
func TestWindowsServeInOrderWhatThereIsRoomFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &crowd{Budget: NewBudget(rapid.IntRange(1<<20, 16<<20).Draw(t, "budget")), t: t}
		for range rapid.IntRange(1, 5).Draw(t, "topics") {
			c.lines = append(c.lines, &line{Window: c.Window(rapid.IntRange(1, 1000).Draw(t, "size"))})
		}
		topic := func(t *rapid.T) *line { return rapid.SampledFrom(c.lines).Draw(t, "topic") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { c.look() },
			"come": func(t *rapid.T) {
				l := topic(t)
				before := l.held
				l.waiting = append(l.waiting, l.join(rapid.IntRange(1, 600).Draw(t, "want")))
				if l.held > before && (l.held > 2*l.size || l.ahead > max(1, l.size/2)) {
					t.Fatalf("%d tasks, %d of them ahead, in a window of %d", l.held, l.ahead, l.size)
				}
			},
			"go": func(t *rapid.T) { l := topic(t); l.leave(pick(t, &l.waiting)) },
			"claimed": func(t *rapid.T) {
				l := topic(t)
				r := pick(t, &l.claims)
				n := rapid.IntRange(0, r.Tasks).Draw(t, "tasks")
				bytes := n*taskBytes + rapid.IntRange(0, r.Records()).Draw(t, "bytes")
				if n == 0 {
					bytes = 0
				}
				if n == 1 && rapid.Bool().Draw(t, "large") {
					bytes = 3 << 20
				}
				c.over += max(0, bytes-r.Bytes)
				kept := l.Keep(r, n, bytes)
				l.tasks = append(l.tasks, carried{Room: kept})
			},
			"written": func(t *rapid.T) {
				l := topic(t)
				one := pick(t, &l.tasks)
				if !one.written {
					l.Free(0, one.Tasks, 0)
				}
				one.written = true
				l.tasks = append(l.tasks, one)
			},
			"resolved": func(t *rapid.T) {
				l := topic(t)
				one := pick(t, &l.tasks)
				if !one.written {
					l.Free(0, one.Tasks, 0)
				}
				l.Free(0, 0, one.Bytes)
				l.settles = append(l.settles, one.Tasks)
			},
			"settled": func(t *rapid.T) { l := topic(t); l.Free(pick(t, &l.settles), 0, 0) },
			"resize":  func(t *rapid.T) { topic(t).Resize(rapid.IntRange(1, 1000).Draw(t, "size")) },
		})
	})
}

// TestWhoLeavesTheLineLetsTheNextOneIn: the tick of the first in line ends. It waited for
// more room than the next one needs.
func TestWhoLeavesTheLineLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewBudget(plenty).Window(200)
		if got, err := w.Reserve(t.Context(), 90); got.Tasks != 90 || err != nil {
			t.Fatalf("an empty window of 200 gave %+v, %v", got, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan Room, 1)
		go func() {
			_, err := w.Reserve(ctx, 50)
			first <- err
		}()
		synctest.Wait()
		go func() {
			got, _ := w.Reserve(t.Context(), 5)
			second <- got
		}()
		synctest.Wait()
		if len(second) > 0 {
			t.Fatal("the second in line was served before the first")
		}
		leave()
		if err := <-first; err == nil {
			t.Error("served after it left")
		}
		if got := <-second; got.Tasks != 5 {
			t.Errorf("the second in line got room for %d tasks, want 5 of 10", got.Tasks)
		}
	})
}

// TestWhoIsServedWhileItLeavesGivesItBack: its tick ended at the moment of its turn.
func TestWhoIsServedWhileItLeavesGivesItBack(t *testing.T) {
	t.Parallel()
	w := NewBudget(plenty).Window(20)
	w.leave(w.join(10))
	if next := w.join(10); len(next.got) != 1 {
		t.Error("places are taken that nobody has")
	}
	if held, bytes := w.InUse(); held != 10 || bytes != 10*taskBytes+claimBytes {
		t.Errorf("%d tasks and %d bytes are in use", held, bytes)
	}
}

func TestAFullWindowWaitsForAQuarter(t *testing.T) {
	t.Parallel()
	w := NewBudget(plenty).Window(200)
	all := w.join(500)
	if got := <-all.got; got.Tasks != 100 {
		t.Fatalf("an empty window of 200 gave %+v, want half of it", got)
	}
	next := w.join(500)
	w.Free(0, 24, 0)
	if len(next.got) > 0 {
		t.Fatal("served with 24 free: claims get tiny")
	}
	w.Free(0, 1, 0)
	if got := <-next.got; got.Tasks != 25 {
		t.Fatalf("got %+v of 25 free places", got)
	}
}

// TestWhatIsNotSettledStopsClaims: unsettled tasks take no places in the broker's window,
// so that the broker stays busy. But while Redis takes no outcomes, no more than twice
// the window is claimed.
func TestWhatIsNotSettledStopsClaims(t *testing.T) {
	t.Parallel()
	w := NewBudget(plenty).Window(100)
	claimed := 0
	for claimed < 200 {
		next := w.join(50)
		if len(next.got) == 0 {
			t.Fatalf("no claim, with %d tasks of a window of 100 in RabbitMQ's hands or confirmed", claimed)
		}
		got := <-next.got
		claimed += got.Tasks
		w.Keep(got, got.Tasks, 1)
		w.Free(0, got.Tasks, 0)
		w.Free(0, 0, 1)
	}
	next := w.join(50)
	if len(next.got) > 0 {
		t.Fatal("tasks are claimed though twice the window waits to be settled")
	}
	w.Free(12, 0, 0)
	if len(next.got) == 0 {
		t.Fatal("no claim though room for a quarter of what may be claimed ahead was made")
	}
}

func TestAWaitForTheWindowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewBudget(plenty).Window(1)
		_, err := w.Reserve(t.Context(), 1)
		check.OK(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := w.Reserve(ctx, 1); err == nil {
			t.Fatalf("reserved %+v in a full window", got)
		}
	})
}

func TestAWindowThatGrowsLetsWaitersIn(t *testing.T) {
	t.Parallel()
	w := NewBudget(plenty).Window(1)
	<-w.join(1).got
	next := w.join(10)
	if len(next.got) > 0 {
		t.Fatal("served in a full window")
	}
	w.Resize(22)
	if got := <-next.got; got.Tasks != 10 {
		t.Fatalf("reserved %+v of 10 new places", got)
	}
}

// drink claims tasks of some size for a topic until it gets no more room; nobody confirms
// them. It returns how many tasks and bytes the topic then has.
func drink(w *Window, size int) (tasks, bytes int) {
	for {
		next := w.join(500)
		if len(next.got) == 0 {
			w.leave(next)
			return tasks, bytes
		}
		got := <-next.got
		n := min(got.Tasks, max(1, got.Records()/size))
		w.Keep(got, n, n*(taskBytes+size))
		w.Free(0, n, 0)
		tasks, bytes = tasks+n, bytes+n*(taskBytes+size)
	}
}

// TestLargePayloadsAreBoundedInBytes: with the largest payloads the memory bounds the
// tasks in flight, and not the window.
func TestLargePayloadsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const limit, payload = 64 << 20, 256 << 10
	b := NewBudget(limit)
	one := b.Window(2000)
	tasks, bytes := drink(one, payload)
	if bytes > limit/parts || bytes < limit/parts*9/10 {
		t.Errorf("a topic alone has %d tasks with %d bytes in flight, want about a quarter of %d", tasks, bytes, limit)
	}
	const topics = 20
	for range topics {
		drink(b.Window(2000), payload)
	}
	if all, most := b.InUse(), limit+topics*(payload+claimBytes); all > most || all < limit {
		t.Errorf("%d topics have %d bytes in flight, of %d, and at most %d with a claim for each that came last", topics+1,
			all, limit, most)
	}
}

// TestATopicThatIsStuckStarvesNoOther: topics whose broker confirms nothing have taken
// all that they get. A topic that comes then still has its share.
func TestATopicThatIsStuckStarvesNoOther(t *testing.T) {
	t.Parallel()
	const topics, payload = 100, 256 << 10
	b := NewBudget(64 << 20)
	all := make([]*Window, topics)
	for i := range all {
		all[i] = b.Window(2000)
	}
	for _, w := range all[1:] {
		drink(w, payload)
	}
	if next := all[0].join(500); len(next.got) == 0 {
		t.Error("a topic with nothing in flight gets no room")
	} else if got := <-next.got; got.Tasks < 100 || got.Records() < 100*200 {
		t.Errorf("it gets room for %+v, want enough for 100 tasks of 200 bytes", got)
	}
}

// TestRoomOfOneTopicServesTheOthers: in the order in which they found no room.
func TestRoomOfOneTopicServesTheOthers(t *testing.T) {
	t.Parallel()
	const payload = 4 << 10
	b := NewBudget(8 << 20)
	all := make([]*Window, 8)
	for i := range all {
		all[i] = b.Window(2000)
	}
	_, had := drink(all[0], payload)
	for _, w := range all[1:] {
		drink(w, payload)
	}
	first, second := all[3].join(500), all[4].join(500)
	if len(first.got)+len(second.got) > 0 {
		t.Fatal("served though the budget is used up")
	}
	all[0].Free(0, 0, had)
	if len(first.got) == 0 || len(second.got) > 0 {
		t.Fatalf("not the first is served alone: %d and %d", len(first.got), len(second.got))
	}
	all[3].Keep(<-first.got, 1, taskBytes)
	if len(second.got) == 0 {
		t.Error("the second is not served, of what the first left")
	}
	all[0].Close()
	if len(b.topics) != 7 {
		t.Errorf("%d topics have shares, want 7", len(b.topics))
	}
}
