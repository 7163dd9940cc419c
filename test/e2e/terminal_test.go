package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestLoadOnATerminal: load draws a bar while it runs, prints bad lines legibly, and
// erases the bar at the end.
func TestLoadOnATerminal(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, `{"id":"o-%d","in":"1h"}`+"\n", i)
	}
	lines.WriteString("{}\n")
	tasks := filepath.Join(t.TempDir(), "tasks.ndjson")
	check.OK(t, os.WriteFile(tasks, []byte(lines.String()), 0o600))
	out, err := fleet.Command{
		Path: programs.Producer, Args: []string{"load", "--topic", "orders", "--file", tasks, "--config",
			w.file(producerRole)}, Terminal: true,
	}.Run(check.Context(t))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	check.OK(t, err)
	if out.Code != 1 || !strings.HasPrefix(out.Stdout, "5001 lines: 5000 scheduled, 0 existing, 1 bad in ") {
		t.Errorf("code %d, it prints %q; want 1 and the summary", out.Code, out.Stdout)
	}
	drawn := strings.Split(out.Stderr, "\r")
	bar := func(text string) bool { return strings.HasPrefix(text, "load ") && strings.Contains(text, "%") }
	bars, bad := 0, false
	for _, text := range drawn {
		if bar(text) {
			bars++
		}
		bad = bad || strings.HasPrefix(text, "producer: line 5001: ")
	}
	last := drawn[len(drawn)-2:] // a terminal ends lines with \r\n
	if bars == 0 || !bad || !strings.HasPrefix(last[0], "producer: load orders: 1 of 5001 lines are bad") {
		t.Errorf("%d bars, the bad line by itself: %v, at last %q; all of it: %q", bars, bad, last, out.Stderr)
	}
}

// TestInterrupt: Ctrl-C ends a scanner in the same way as SIGTERM.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(2)
	check.OK(t, w.scanners[0].Signal(syscall.SIGINT))
	if code, err := w.scanners[0].Wait(check.Context(t)); err != nil || code != 0 {
		t.Errorf("code %d, %v; want 0", code, err)
	}
	check.Until(t, "the scanner to leave the fleet", rarely(func() bool { return len(w.status().Fleet) == 1 }))
	if log := w.log(w.scanners[0]); !strings.Contains(log, "scanner stopped") {
		t.Errorf("the log has no line about its end:\n%s", log)
	}
}

// TestSecondSignal: while Redis hangs, a scanner can't end in order. A second signal ends
// it at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			server := servertest.OwnRedis(t)
			settings := fleet.Settings{Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)}}
			settings.RedisAddr, settings.RedisPrefix, settings.RabbitMQURL = server.Addr(), "duefleet", servertest.RabbitMQ(t)
			w := newFixtureOn(t, settings, servertest.RedisOptions(server.Addr()))
			w.settings.ShutdownTimeout = "10m" // the largest value
			w.write()
			w.start(1)
			s := w.scanners[0]
			check.OK(t, server.Pause())
			check.OK(t, s.Signal(sig))
			check.Until(t, "the scanner to stop", func() bool { return strings.Contains(w.log(s), "scanner stops") })
			// The system drops a signal if the same one is still pending, so repeat it.
			check.Until(t, "the end at a second signal", rarely(func() bool { return ended(s) || s.Signal(sig) != nil }))
			if code, err := s.Wait(t.Context()); err != nil || code != -1 {
				t.Errorf("code %d, %v; want it ended by the signal", code, err)
			}
			check.OK(t, server.Resume())
			w.checkLogs()
			w.scanners = nil
		})
	}
}

// TestCheckConsul: check reads every document in Consul, and prints each mistake with
// topic, key and line.
func TestCheckConsul(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	if out := must(t, w.scanner("check")); out.Stdout != "ok: 1 topics in consul\n" || out.Stderr != "" {
		t.Errorf("good documents: %q, %q", out.Stdout, out.Stderr)
	}
	for name, doc := range map[string]string{
		"invoices": "exchange: billing\nshards: 5000\nlease: 2 hours\n",
		"mails":    "{\"shards\": 4, \"colour\": \"red\"}",
	} {
		_, err := w.kv().Put(&consul.KVPair{Key: w.settings.ConsulPrefix + "/topics/" + name, Value: []byte(doc)},
			nil)
		check.OK(t, err)
	}
	out := w.scanner("check")
	checkError(t, "bad documents", out, 1, "2 of 3 topics' documents in consul have mistakes")
	mistakes := strings.Split(strings.TrimSpace(out.Stdout), "\n")
	want := [][]string{{"invoices", ":2: ", "shards", "5000"}, {"invoices", ":3: ", "lease"}, {"mails", ":1: ", "colour"}}
	if len(mistakes) != len(want) {
		t.Fatalf("it prints\n%swant a line for each of the %d mistakes", out.Stdout, len(want))
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(mistakes[i], word) {
				t.Errorf("%q doesn't contain %q", mistakes[i], word)
			}
		}
	}
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	w.settings.ConsulAddr = addr
	w.write()
	checkError(t, "Consul away", w.scanner("check"), 1, "the file is good", addr)
}
