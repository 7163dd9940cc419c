package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestBrokenDocument: settings with a mistake change nothing. Status, the metrics and the
// note in Consul name the wrong key. The mistake delays another topic's change only if
// both topics are in one file.
func TestBrokenDocument(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		w.send("orders", "before", 10)
		w.arrive("the tasks before")
		w.spoil("orders")
		check.Until(w.t, "status to name the mistake", rarely(func() bool {
			members := 0
			for _, m := range w.status().Fleet {
				if strings.Contains(fmt.Sprint(m.Errors), "shards") {
					members++
				}
			}
			return members == 2
		}))
		for _, s := range w.scanners {
			if n := readMetrics(w.t, s).sum("duefleet_config_errors_total"); n < 1 {
				w.t.Errorf("config_errors_total is %v, want 1 or more", n)
			}
		}
		if w.settings.ConsulAddr != "" {
			check.Until(w.t, "the notes in Consul", rarely(func() bool { return w.notes("shards") == 2 }))
		}
		if got := w.status().Topic("orders").Shards; got != 4 {
			w.t.Errorf("the topic has %d shards, want 4 as before", got)
		}
		w.send("orders", "meanwhile", 10)
		w.arrive("the tasks under the old settings")
		w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 5}))
		check.Until(w.t, "the corrected settings", rarely(func() bool { return w.status().Topic("orders").Shards == 5 }))
		check.Until(w.t, "status without the mistake", rarely(func() bool {
			for _, m := range w.status().Fleet {
				if len(m.Errors) > 0 {
					return false
				}
			}
			return true
		}))
		w.send("orders", "after", 10)
		w.check()
	})
}

// TestBrokenDocumentVanishes: deleting a broken document removes its error, for a topic
// that was served before and for one that never was.
func TestBrokenDocumentVanishes(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	w.spoil("orders")
	w.spoil("invoices")
	mistakes := func(n int) func() bool {
		return rarely(func() bool {
			for _, m := range w.status().Fleet {
				if len(m.Errors) != n {
					return false
				}
			}
			return true
		})
	}
	check.Until(t, "status to name two mistakes", mistakes(2))
	for _, s := range w.scanners {
		check.Until(t, "the metrics to count two mistakes",
			rarely(func() bool { return readMetrics(t, s).sum("duefleet_config_errors") == 2 }))
	}
	for _, topic := range []string{"orders", "invoices"} {
		w.vanish(topic)
	}
	check.Until(t, "status without a mistake", mistakes(0))
	for _, s := range w.scanners {
		w.awaitAnswer(s, "config: ok: 1 topics, 0 errors")
		if m := readMetrics(t, s); m.sum("duefleet_config_errors") != 0 || m.sum("duefleet_config_errors_total") != 2 {
			t.Errorf("%v errors in the metrics, %v counted; want 0 and 2", m.sum("duefleet_config_errors"),
				m.sum("duefleet_config_errors_total"))
		}
	}
	check.Until(t, "notes in Consul without a mistake", rarely(func() bool { return w.notes("shards") == 0 }))
	w.send("orders", "o", 10)
	w.check()
}

// notes counts the scanners' notes in Consul that contain a word.
func (w *fixture) notes(word string) int {
	w.t.Helper()
	pairs, _, err := w.kv().List(w.settings.ConsulPrefix+"/status/", nil)
	check.OK(w.t, err)
	n := 0
	for _, p := range pairs {
		if strings.Contains(string(p.Value), word) {
			n++
		}
	}
	return n
}
