package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// puts are the calls of the put script of a client, in the order in which they were
// begun. Each waits to be let go.
type puts struct {
	text  string // of the script
	begun chan *heldPut
}

type heldPut struct {
	ctx   context.Context
	args  []any
	sent  chan struct{}
	ends  bool  // the goroutine, in place of sending it
	fails error // what its sender meets in place of Redis's answer; nil: that answer
}

func (p *puts) around(ctx context.Context, r faults.Request) error {
	held := &heldPut{ctx: ctx, sent: make(chan struct{})}
	for _, cmd := range r.Commands {
		if faults.Runs(cmd, p.text) {
			held.args = append(held.args, cmd.Args()...)
		}
	}
	if len(held.args) > 0 {
		p.begun <- held
		select {
		case <-held.sent:
			if held.ends {
				runtime.Goexit()
			}
		case <-ctx.Done():
		}
	}
	err := r.Send(ctx)
	if held.fails != nil {
		return held.fails
	}
	return err
}

// names says that a task is among those that the call puts.
func (h *heldPut) names(id string) bool { return slices.Contains(h.args, any(id)) }

func (h *heldPut) let() { close(h.sent) }

// fail lets the call go, and has its sender meet an error.
func (h *heldPut) fail(err error) {
	h.fails = err
	h.let()
}

// end ends the goroutine that sends the call.
func (h *heldPut) end() {
	h.ends = true
	h.let()
}

// gathering is a topic of one shard whose calls the test lets go one by one. One that is
// awaited has the others gather, for as long as the test says.
type gathering struct {
	*sandbox
	r     *Router
	calls *puts
	over  sync.WaitGroup
}

func newGathering(t *testing.T, limit time.Duration) *gathering {
	t.Helper()
	c := newSandbox(t, 1)
	text, err := shard.Script("put")
	check.OK(c.t, err)
	calls := &puts{text, make(chan *heldPut, 100)}
	g := &gathering{sandbox: c, r: c.Router("orders"), calls: calls}
	g.r.batchers.beside, g.r.batchers.patience = 1, limit
	if s := g.r.Schedule(t.Context(), []shard.Entry{{ID: "there", When: task.Now(), Body: []byte{0}}}); s[0].Err != nil {
		t.Fatal(s[0].Err) // the script is known, and the clock
	}
	faults.Around(c.rdb, calls.around)
	t.Cleanup(g.over.Wait)
	return g
}

// schedule begins a call of ScheduleOne.
func (g *gathering) schedule(ctx context.Context, e shard.Entry) <-chan Scheduled {
	answer := make(chan Scheduled, 1)
	e.When, e.Body = task.In(time.Hour), []byte{0}
	g.over.Go(func() {
		due, err := g.r.ScheduleOne(ctx, e)
		answer <- Scheduled{due, err}
	})
	return answer
}

// gathered waits until n entries wait for the next call.
func (g *gathering) gathered(n int) {
	g.t.Helper()
	l := g.r.batcher("")
	check.Until(g.t, fmt.Sprintf("%d to gather", n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.open != nil && l.open.present == n || l.open == nil && n == 0
	})
}

func (g *gathering) next() *heldPut {
	g.t.Helper()
	return check.Receive(g.t, "a call", g.calls.begun)
}

// good is an answer that must be one of a task that is stored.
func (g *gathering) good(of <-chan Scheduled) {
	g.t.Helper()
	if s := check.Receive(g.t, "an answer", of); s.Err != nil || s.Due == 0 {
		g.t.Errorf("answer %+v", s)
	}
}

func (g *gathering) stored(id string) bool {
	g.t.Helper()
	_, err := g.r.Get(g.t.Context(), id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		g.t.Fatal(err)
	}
	return err == nil
}

// TestOneByOneSharesACall: one alone is sent at once, and those that come while its
// answer is awaited go together, each with an answer of its own.
func TestOneByOneSharesACall(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	answers := []<-chan Scheduled{g.schedule(t.Context(), shard.Entry{ID: "alone"})}
	alone := g.next()
	for i := range 20 {
		answers = append(answers, g.schedule(t.Context(), shard.Entry{ID: fmt.Sprint("more ", i), IfAbsent: i%2 == 0}))
	}
	taken := g.schedule(t.Context(), shard.Entry{ID: "there", IfAbsent: true})
	g.gathered(21)
	alone.let()
	together := g.next()
	if together.names("alone") || !together.names("more 0") || !together.names("more 19") || !together.names("there") {
		t.Errorf("the next call is of %v", together.args)
	}
	g.gathered(0)
	together.let()
	for _, a := range answers {
		g.good(a)
	}
	if s := check.Receive(t, "an answer", taken); !errors.Is(s.Err, task.ErrExists) {
		t.Errorf("one that is there: %+v", s)
	}
	last := g.schedule(t.Context(), shard.Entry{ID: "alone again"})
	g.next().let()
	g.good(last)
}

// TestALostAnswerHoldsUpNoOthers: calls after a call without an answer are sent
// while it waits.
func TestALostAnswerHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	g := newGathering(t, gatherPatience)
	lost := g.schedule(t.Context(), shard.Entry{ID: "lost"})
	silent := g.next()
	for i := range 3 {
		id := fmt.Sprint("after ", i)
		answer := g.schedule(t.Context(), shard.Entry{ID: id})
		call := g.next()
		if !call.names(id) {
			t.Errorf("call %d is of %v", i, call.args)
		}
		call.let()
		g.good(answer)
	}
	silent.let()
	g.good(lost)
}

// TestCallsForOneIDAreKeptApart: within one call none could tell whose task a shard has.
func TestCallsForOneIDAreKeptApart(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	alone := g.schedule(t.Context(), shard.Entry{ID: "alone"})
	first := g.next()
	one := g.schedule(t.Context(), shard.Entry{ID: "same", IfAbsent: true})
	g.gathered(1)
	other := g.schedule(t.Context(), shard.Entry{ID: "same", IfAbsent: true})
	second := g.next() // on its own, so that the other may gather
	g.gathered(1)
	second.let()
	g.good(one)
	first.let()
	g.good(alone)
	third := g.next()
	if !second.names("same") || !third.names("same") {
		t.Errorf("calls of %v and %v", second.args, third.args)
	}
	third.let()
	if s := check.Receive(t, "an answer", other); !errors.Is(s.Err, task.ErrExists) {
		t.Errorf("the other: %+v", s)
	}
}

// TestACallIsNoLargerThanAScriptTakes: by tasks and by bytes.
func TestACallIsNoLargerThanAScriptTakes(t *testing.T) {
	t.Parallel()
	full := &gathered{ids: map[string]bool{}}
	for i := range scriptTasks {
		e := shard.Entry{ID: fmt.Sprint(i)}
		if !full.takes(e) {
			t.Fatalf("it takes %d", i)
		}
		full.add(&waiter{entry: e})
	}
	if full.takes(shard.Entry{ID: "one more"}) {
		t.Errorf("it takes more than %d", scriptTasks)
	}
	large := &gathered{ids: map[string]bool{}}
	large.add(&waiter{entry: shard.Entry{ID: "a", Body: make([]byte, scriptBytes-1)}})
	if !large.takes(shard.Entry{ID: "b", Body: make([]byte, 1)}) ||
		large.takes(shard.Entry{ID: "c", Body: make([]byte, 2)}) {
		t.Errorf("of bytes it takes others than %d", scriptBytes)
	}
}

// TestWhoGivesUpHoldsUpNobody: before the call is sent the task is not stored; after
// that it may be; and the call ends when nobody waits for it.
func TestWhoGivesUpHoldsUpNobody(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	alone := g.schedule(t.Context(), shard.Entry{ID: "alone"})
	first := g.next()
	early, endEarly := context.WithCancel(t.Context())
	late, endLate := context.WithCancel(t.Context())
	gone := g.schedule(early, shard.Entry{ID: "gone"})
	g.gathered(1)
	endEarly()
	// nothing was sent
	if s := check.Receive(t, "an answer", gone); !errors.Is(s.Err, context.Canceled) ||
		!errors.Is(s.Err, task.ErrUnavailable) {
		t.Errorf("who gave up before: %+v", s)
	}
	leaving := g.schedule(late, shard.Entry{ID: "leaving"})
	staying := g.schedule(t.Context(), shard.Entry{ID: "staying"})
	g.gathered(2)
	first.let()
	g.good(alone)
	second := g.next()
	if second.names("gone") || !second.names("leaving") || !second.names("staying") {
		t.Errorf("the next call is of %v", second.args)
	}
	endLate()
	s := check.Receive(t, "an answer", leaving)
	if !errors.Is(s.Err, context.Canceled) || !shard.Unknown(s.Err) {
		t.Errorf("who gave up after: %+v", s)
	}
	if second.ctx.Err() != nil {
		t.Error("the call ended with one of two who wait for it")
	}
	third := g.schedule(late, shard.Entry{ID: "at once"}) // during a call, with a context that is over.
	if s := check.Receive(t, "an answer", third); !errors.Is(s.Err, context.Canceled) {
		t.Errorf("with a context that is over: %+v", s)
	}
	second.let()
	g.good(staying)
	if g.stored("gone") || !g.stored("leaving") || !g.stored("staying") || g.stored("at once") {
		t.Error("stored is not what was sent")
	}
}

// answeredError is an error that Redis itself answers.
type answeredError string

func (e answeredError) Error() string { return string(e) }

// RedisError marks it as Redis's.
func (answeredError) RedisError() {}

// TestWhatACallerLeftIsInNoLaterSend: its caller may have cancelled the task since, or
// stored a newer version. The others that share the call get their answers.
func TestWhatACallerLeftIsInNoLaterSend(t *testing.T) {
	t.Parallel()
	for name, met := range map[string]error{
		"the reply is lost": io.EOF,
		"Redis is loading":  answeredError("LOADING Redis is loading the dataset in memory"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGathering(t, time.Hour)
			alone := g.schedule(t.Context(), shard.Entry{ID: "alone"})
			first := g.next()
			ctx, leave := context.WithCancel(t.Context())
			leaving := g.schedule(ctx, shard.Entry{ID: "leaving"})
			staying := g.schedule(t.Context(), shard.Entry{ID: "staying"})
			g.gathered(2)
			first.let()
			g.good(alone)
			second := g.next()
			if !second.names("leaving") || !second.names("staying") {
				t.Fatalf("the call is of %v", second.args)
			}
			leave()
			if s := check.Receive(t, "an answer", leaving); !errors.Is(s.Err, context.Canceled) {
				t.Errorf("the caller that left: %+v", s)
			}
			second.fail(met)
			third := g.next()
			if third.names("leaving") || !third.names("staying") {
				t.Errorf("the repeat is of %v", third.args)
			}
			if err := g.r.Cancel(t.Context(), "leaving"); err != nil { // the first send stored it
				t.Errorf("cancel: %v", err)
			}
			third.let()
			g.good(staying)
			if g.stored("leaving") || !g.stored("staying") {
				t.Error("a cancelled task is stored, or the other is not")
			}
		})
	}
}

// TestACallEndsWhenNobodyWaitsForIt: and the next ones go on.
func TestACallEndsWhenNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	alone := g.schedule(t.Context(), shard.Entry{ID: "alone"})
	first := g.next()
	ctx, end := context.WithCancel(t.Context())
	leaving := g.schedule(ctx, shard.Entry{ID: "leaving"})
	g.gathered(1)
	first.let()
	g.good(alone)
	second := g.next()
	end()
	if s := check.Receive(t, "an answer", leaving); !errors.Is(s.Err, context.Canceled) {
		t.Errorf("who gave up: %+v", s)
	}
	check.Closed(t, "the end of a call that nobody waits for", second.ctx.Done())
	second.let()
	last := g.schedule(t.Context(), shard.Entry{ID: "last"})
	third := g.next()
	third.let()
	g.good(last)
}

// TestFewCallsAreSentAtOnce: producers' router sends two calls at the same time.
func TestFewCallsAreSentAtOnce(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	g.r.batchers.beside = gatherBeside
	var answers []<-chan Scheduled
	var calls []*heldPut
	for i := range gatherBeside {
		answers = append(answers, g.schedule(t.Context(), shard.Entry{ID: fmt.Sprint("at once ", i)}))
		calls = append(calls, g.next())
	}
	answers = append(answers, g.schedule(t.Context(), shard.Entry{ID: "gathers"}))
	g.gathered(1)
	for _, c := range calls {
		c.let()
	}
	g.next().let()
	for _, a := range answers {
		g.good(a)
	}
}

// TestACallThatAHookEndsHoldsUpNoOthers: neither those that share it, nor those behind it.
func TestACallThatAHookEndsHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	g := newGathering(t, time.Hour)
	g.schedule(t.Context(), shard.Entry{ID: "alone"})
	alone := g.next()
	shares := g.schedule(t.Context(), shard.Entry{ID: "shares"})
	g.gathered(1)
	alone.end()
	shared := g.next()
	behind := g.schedule(t.Context(), shard.Entry{ID: "behind"})
	g.gathered(1)
	shared.end()
	if s := check.Receive(t, "an answer", shares); s.Err == nil || !shard.Unknown(s.Err) {
		t.Errorf("of a call that ended: %+v", s)
	}
	g.next().let()
	g.good(behind)
	last := g.schedule(t.Context(), shard.Entry{ID: "last"})
	g.next().let()
	g.good(last)
}
