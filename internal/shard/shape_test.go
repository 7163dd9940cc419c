package shard

import (
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAScriptThatAnswersAnotherShapeIsAnError: each call that reads a reply, of a script
// in whose place another one ran.
func TestAScriptThatAnswersAnotherShapeIsAnError(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	texts, err := scriptTexts()
	check.OK(c.t, err)
	for name := range texts {
		texts[name] = "#!lua flags=no-writes\n-- " + name + "\nreturn {{}}"
	}
	server := luascript.Given(c.rdb)
	c.store.scripts = luascript.New(server, texts)
	c.store.registry = registry.New(server, c.store.scripts, c.store.prefix)
	s := c.Shard(0)
	for name, do := range map[string]func() error{
		"put":    func() error { return c.tryPut(c.p, Put{Entries: []Entry{entry("b", task.Now())}}).Err },
		"read":   func() error { _, err := s.Read(c.t.Context(), c.p, "a"); return err },
		"fetch":  func() error { return c.Fetch(c.t.Context(), c.p, []Names{{0, []string{"a"}}})[0].Err },
		"fence":  func() error { _, err := s.Fence(c.t.Context(), c.p, "a"); return err },
		"delete": func() error { _, err := c.Delete(c.t.Context(), 0, c.p, c.notAfter(), false, "a"); return err },
		"claim":  func() error { _, err := s.Claim(c.t.Context(), Claim{Claimant: "w", Request: "1"}); return err },
		"settle": func() error { _, err := s.Settle(c.t.Context(), []Lease{{ID: "a", Token: "-1"}}); return err },
		"advance": func() error {
			_, err := s.Advance(c.t.Context(), []Advance{{Lease: Lease{ID: "a", Token: "-1"}}})
			return err
		},
		"release": func() error {
			_, err := s.Release(c.t.Context(), []Release{{Lease: Lease{ID: "a", Token: "-1"}}})
			return err
		},
		"attention": func() error { return c.Attention(c.t.Context(), 0)[0].Err },
		"stats":     func() error { _, err := c.Stats(c.t.Context(), 1); return err },
		"list":      func() error { _, err := s.List(SpanOf(task.Waiting), "").Next(c.t.Context()); return err },
		"export":    func() error { _, err := s.Export(c.t.Context(), c.p, Export{Claimant: "m"}); return err },
		"import":    func() error { return c.Import(c.t.Context(), c.p, 1, Share{})[0].Err },
		"scan_pass": func() error {
			_, err := s.Pass(c.t.Context(), c.p)
			return err
		},
		"draw":           func() error { _, err := c.Draw(c.t.Context(), Draw{Instance: "here", N: 1}); return err },
		"begin_term":     func() error { _, _, err := c.BeginTerm(c.t.Context(), 0); return err },
		"raise_term":     func() error { return c.RaiseTerm(c.t.Context(), 1, 0, c.p) },
		"cas_placement":  func() error { _, err := c.change(c.t.Context(), c.p, c.p); return err },
		"rate":           func() error { _, _, err := c.store.registry.Grant(c.t.Context(), c.name, 1, 1, 0); return err },
		"heartbeat":      func() error { _, err := c.store.registry.Heartbeat(c.t.Context(), "i", 1, 1); return err },
		"check_delivery": func() error { _, err := c.CheckDelivery(c.t.Context(), Delivered{ID: "a"}, 0); return err },
		"allow_next":     func() error { _, _, err := c.AllowNext(c.t.Context(), Delivered{ID: "a"}, 1, 1); return err },
		"older":          func() error { _, err := c.Older(c.t.Context(), Requeue{ID: "a"}, Kept{}); return err },
		"requeue": func() error {
			_, err := s.Requeue(c.t.Context(), c.p, c.notAfter(), Requeue{ID: "a"}, Requeuing{})
			return err
		},
		"reschedule": func() error {
			_, err := s.Reschedule(c.t.Context(), c.p, c.notAfter(), Move{ID: "a"})
			return err
		},
		"mark_clean": func() error { _, err := c.MarkClean(c.t.Context(), c.p, 0); return err },
		"clear":      func() error { _, _, err := c.Clear(c.t.Context(), c.p, true); return err },
		"replay":     func() error { _, err := s.Replay(c.t.Context(), "a"); return err },
		"purge":      func() error { _, err := s.PurgeParked(c.t.Context(), "a"); return err },
		"forget":     func() error { return c.Forget(c.t.Context(), c.p) },
		"keep_document": func() error {
			return c.store.registry.TakeSources(c.t.Context(), "x", map[string]string{"orders": ""})["orders"].Err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "script "+name+" answered a list") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
