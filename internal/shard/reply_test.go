package shard

import (
	"errors"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/task"
)

// TestAReplyOfAnotherShapeIsAnErrorThatNamesItsScript: for each way to read a reply, one
// that fits, and one that doesn't.
func TestAReplyOfAnotherShapeIsAnErrorThatNamesItsScript(t *testing.T) {
	t.Parallel()
	reply := func(value any) Reply { return Reply{script: "claim", value: value} }
	integer := func(r Reply) error { _, err := r.Int(); return err }
	text := func(r Reply) error { _, err := r.Text(); return err }
	pair := func(r Reply) error {
		l := r.Values()
		l.Text()
		l.Int()
		return l.Err()
	}
	optional := func(r Reply) error {
		l := r.Values()
		l.TextIf()
		return l.Err()
	}
	for name, row := range map[string]struct {
		read  func(Reply) error
		value any
		want  string
	}{
		"an integer":           {integer, int64(1), ""},
		"no integer":           {integer, "1", "script claim answered a text as element 1, not an integer"},
		"nil for an integer":   {integer, nil, "script claim answered nil as element 1, not an integer"},
		"a text":               {text, "a", ""},
		"no text":              {text, int64(1), "script claim answered an integer as element 1, not a text"},
		"two elements":         {pair, []any{"a", int64(1)}, ""},
		"one too few":          {pair, []any{"a"}, "script claim answered 1 elements; an integer is missing"},
		"the first is another": {pair, []any{int64(1), int64(1)}, "script claim answered an integer as element 1, not a text"},
		"the last is another":  {pair, []any{"a", nil}, "script claim answered nil as element 2, not an integer"},
		"a list in a list":     {pair, []any{[]any{}}, "script claim answered a list as element 1, not a text"},
		"no list":              {pair, "a", "script claim answered a text, not a list"},
		"nil for a list":       {pair, nil, "script claim answered nil, not a list"},
		"a text that may lack": {optional, []any{"a"}, ""},
		"and lacks":            {optional, []any{nil}, ""},
		"and is a number":      {optional, []any{int64(1)}, "script claim answered an integer as element 1, not a text"},
	} {
		err := row.read(reply(row.value))
		if got := errText(err); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAReplyOfACallThatFailedIsItsError, except that a master's answer is read that too few
// replicas have.
func TestAReplyOfACallThatFailedIsItsError(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	r := Reply{script: "claim", value: []any{"ok", int64(7)}, err: refused}
	l := r.Values()
	if l.Text(); !errors.Is(l.Err(), refused) || l.Left() != 0 {
		t.Errorf("got %v, %d elements left", l.Err(), l.Left())
	}
	if _, err := r.Int(); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	r.err = &ReplicasError{Have: 0, Want: 1}
	l = r.Values()
	if status, n := l.Text(), l.Int(); status != "ok" || n != 7 || l.Err() != nil || !errors.Is(r.Err(), task.ErrReplicas) {
		t.Errorf("got %q, %d, %v, %v", status, n, l.Err(), r.Err())
	}
}

// TestAScriptThatAnswersAnotherShapeIsAnError: each call that reads a reply, of a script
// in whose place another one ran.
func TestAScriptThatAnswersAnotherShapeIsAnError(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(In(0), "a")
	for name := range c.scripts.scripts {
		text := "#!lua flags=no-writes\nreturn {{}}"
		c.scripts.scripts[name] = NewClient(c.rdb, map[string]string{name: text}).scripts[name]
	}
	s := c.Shard(0)
	for name, do := range map[string]func() error{
		"put":     func() error { return c.tryPut(c.p, Put{Entries: []Entry{entry("b", In(0))}}).Err },
		"read":    func() error { _, err := s.Read(c.ctx(), c.p, "a"); return err },
		"fetch":   func() error { return c.Fetch(c.ctx(), c.p, []Names{{0, []string{"a"}}})[0].Err },
		"fence":   func() error { _, err := s.Fence(c.ctx(), c.p, "a"); return err },
		"delete":  func() error { _, err := c.Delete(c.ctx(), 0, c.p, c.notAfter(), false, "a"); return err },
		"claim":   func() error { _, err := s.Claim(c.ctx(), Claim{Claimant: "w", Request: "1"}); return err },
		"settle":  func() error { _, err := s.Settle(c.ctx(), []Lease{{"a", "-1"}}); return err },
		"release": func() error { _, err := s.Release(c.ctx(), []Release{{Lease: Lease{"a", "-1"}}}); return err },
		"next":    func() error { return c.Attention(c.ctx(), 0)[0].Err },
		"stats":   func() error { _, err := c.Stats(c.ctx(), 1); return err },
		"list":    func() error { _, err := s.List(SpanOf(task.Waiting), "").Next(c.ctx()); return err },
		"export":  func() error { _, err := s.Export(c.ctx(), c.p, Export{Claimant: "m"}); return err },
		"import":  func() error { return c.Import(c.ctx(), c.p, 1, Share{})[0].Err },
		"scan_pass": func() error {
			_, err := s.Pass(c.ctx(), c.p)
			return err
		},
		"draw":          func() error { _, _, err := c.Draw(c.ctx(), 1); return err },
		"cas_placement": func() error { _, err := c.change(c.ctx(), c.p, c.p); return err },
		"rate":          func() error { _, _, err := c.Grant(c.ctx(), 1, 1, 0); return err },
		"heartbeat":     func() error { _, err := c.store.Heartbeat(c.ctx(), "i", 1, 1); return err },
		"recall":        func() error { _, err := c.CheckDelivery(c.ctx(), Delivered{ID: "a"}, 0); return err },
		"follow":        func() error { _, _, err := c.AllowNext(c.ctx(), Delivered{ID: "a"}, 1, 1); return err },
		"older":         func() error { _, err := c.Older(c.ctx(), Requeue{ID: "a"}, Kept{}); return err },
		"again": func() error {
			_, err := s.Requeue(c.ctx(), c.p, c.notAfter(), Requeue{ID: "a"}, Requeuing{})
			return err
		},
		"reschedule": func() error {
			_, err := s.Reschedule(c.ctx(), c.p, c.notAfter(), Move{ID: "a"})
			return err
		},
		"mark_clean": func() error { _, err := c.MarkClean(c.ctx(), c.p, 0); return err },
		"clear":      func() error { _, _, err := c.Clear(c.ctx(), c.p, true); return err },
		"replay":     func() error { _, err := s.Replay(c.ctx(), "a"); return err },
		"purge":      func() error { _, err := s.PurgeParked(c.ctx(), "a"); return err },
		"forget":     func() error { return c.Forget(c.ctx(), c.p) },
		"own":        func() error { return c.store.TakeSources(c.ctx(), "x", map[string]string{"orders": ""})["orders"].Err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "script "+name+" answered a list") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
