package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAScannerOfAnotherSourceChangesNothing: a scanner with topics in a file joins a
// fleet that takes its topics from Consul. It changes neither the shard count nor the
// document in Redis, and the fleet reports it. While Consul is down, restarted scanners
// use the fleet's document.
func TestAScannerOfAnotherSourceChangesNothing(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	server, err := servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: filepath.Join(t.TempDir(), "consul")})
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	w := consulSource(t, server.Addr(), "duefleet")
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 3}))
	w.start(2)
	w.consume("orders.due")
	w.settled(3)
	kept := w.settings.RedisPrefix + ":document:{orders}"
	document := ""
	check.Until(t, "the fleet's document in Redis", rarely(func() bool {
		document = w.redis.Get(t.Context(), kept).Val()
		return strings.Contains(document, "shards: 3") && w.status().Topic("orders").Source == "consul:duefleet"
	}))
	stray := w.fixture.withFile(map[string]fleet.Topic{"orders": fleet.DeclaredTopic("stray", fleet.Topic{"shards": 8})})
	s := stray.startAs(fleet.ScannerConfig{Name: "stray"}) // ready, because it delivers
	w.scanners = append(w.scanners, s)
	refused := func() (told string) {
		for _, m := range w.status().Fleet {
			if m.Source == "file" {
				told = m.Refused
			}
		}
		return told
	}
	check.Until(t, "the scanner with a file to name what it doesn't apply",
		rarely(func() bool { return strings.Contains(refused(), "topics orders from consul:duefleet") }))
	if !holdsLine(readyz(s), "source: down (optional)", []string{"consul:duefleet"}) {
		t.Errorf("/readyz of the scanner with a file:\n%s", readyz(s))
	}
	if out := w.scanner("status", "--exit-code"); out.Code != 4 || !strings.Contains(out.Stderr,
		"takes its settings from file") {
		t.Errorf("status --exit-code: %d, %s", out.Code, out.Stderr)
	}
	unchanged := func() bool {
		p := w.placement()
		return p.Shards == 3 && p.Phase == "stable" && w.redis.Get(t.Context(), kept).Val() == document
	}
	w.holds("three shards, and the fleet's document", 3*time.Second, unchanged)

	check.OK(t, server.Kill())
	for _, s := range w.scanners[:2] {
		check.OK(t, s.Kill())
	}
	w.holds("the same while only the scanner with a file lives", 5*time.Second, unchanged)
	for _, s := range w.scanners[:2] {
		check.OK(t, s.Start(check.Context(t)))
	}
	w.send("orders", "without", 100)
	check.Until(t, "tasks by the fleet's document", func() bool { return w.recorder.Ledger.Missing() == 0 })
	if !unchanged() {
		t.Errorf("placement %s, document %s", w.placement(), w.redis.Get(t.Context(), kept).Val())
	}
	w.check()
}

// withFile returns the same fixture for a scanner whose topics are in its file.
func (w *fixture) withFile(topics map[string]fleet.Topic) *fixture {
	w.t.Helper()
	other := &fixture{t: w.t, dir: w.t.TempDir(), settings: w.settings, own: w.own, enrolled: w.enrolled}
	other.config = filepath.Join(other.dir, "config.yaml")
	other.settings.ConsulAddr, other.settings.Topics = "", topics
	other.write()
	return other
}
