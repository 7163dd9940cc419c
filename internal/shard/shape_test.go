package shard

import (
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
)

// TestAScriptThatAnswersAnotherShapeIsAnError: each call that reads a reply, of a script
// in whose place another one ran.
func TestAScriptThatAnswersAnotherShapeIsAnError(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	texts, err := scriptTexts()
	c.ok(err)
	for name := range texts {
		texts[name] = "#!lua flags=no-writes\n-- " + name + "\nreturn {{}}"
	}
	server := luascript.Given(c.rdb)
	c.store.scripts = luascript.New(server, texts)
	c.store.registry = registry.New(server, c.store.scripts, c.store.prefix)
	s := c.Shard(0)
	for name, do := range map[string]func() error{
		"put":    func() error { return c.tryPut(c.p, Put{Entries: []Entry{entry("b", task.Now())}}).Err },
		"read":   func() error { _, err := s.Read(c.ctx(), c.p, "a"); return err },
		"fetch":  func() error { return c.Fetch(c.ctx(), c.p, []Names{{0, []string{"a"}}})[0].Err },
		"fence":  func() error { _, err := s.Fence(c.ctx(), c.p, "a"); return err },
		"delete": func() error { _, err := c.Delete(c.ctx(), 0, c.p, c.notAfter(), false, "a"); return err },
		"claim":  func() error { _, err := s.Claim(c.ctx(), Claim{Claimant: "w", Request: "1"}); return err },
		"settle": func() error { _, err := s.Settle(c.ctx(), []Lease{{ID: "a", Token: "-1"}}); return err },
		"advance": func() error {
			_, err := s.Advance(c.ctx(), []Advance{{Lease: Lease{ID: "a", Token: "-1"}}})
			return err
		},
		"release": func() error {
			_, err := s.Release(c.ctx(), []Release{{Lease: Lease{ID: "a", Token: "-1"}}})
			return err
		},
		"attention": func() error { return c.Attention(c.ctx(), 0)[0].Err },
		"stats":     func() error { _, err := c.Stats(c.ctx(), 1); return err },
		"list":      func() error { _, err := s.List(SpanOf(task.Waiting), "").Next(c.ctx()); return err },
		"export":    func() error { _, err := s.Export(c.ctx(), c.p, Export{Claimant: "m"}); return err },
		"import":    func() error { return c.Import(c.ctx(), c.p, 1, Share{})[0].Err },
		"scan_pass": func() error {
			_, err := s.Pass(c.ctx(), c.p)
			return err
		},
		"draw":           func() error { _, _, err := c.Draw(c.ctx(), 1); return err },
		"begin_term":     func() error { _, _, err := c.BeginTerm(c.ctx()); return err },
		"raise_term":     func() error { return c.RaiseTerm(c.ctx(), 1, c.p) },
		"cas_placement":  func() error { _, err := c.change(c.ctx(), c.p, c.p); return err },
		"rate":           func() error { _, _, err := c.Grant(c.ctx(), 1, 1, 0); return err },
		"heartbeat":      func() error { _, err := c.store.registry.Heartbeat(c.ctx(), "i", 1, 1); return err },
		"check_delivery": func() error { _, err := c.CheckDelivery(c.ctx(), Delivered{ID: "a"}, 0); return err },
		"allow_next":     func() error { _, _, err := c.AllowNext(c.ctx(), Delivered{ID: "a"}, 1, 1); return err },
		"older":          func() error { _, err := c.Older(c.ctx(), Requeue{ID: "a"}, Kept{}); return err },
		"requeue": func() error {
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
		"keep_document": func() error {
			return c.store.TakeSources(c.ctx(), "x", map[string]string{"orders": ""})["orders"].Err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "script "+name+" answered a list") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
