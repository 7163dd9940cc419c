package e2e_test

import (
	"flag"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/wait"
)

var captures = flag.String("captures", "", "the folder where TestWatchOnAFleet writes the contents of the terminal")

// TestWatchOnAFleet: on terminals of 80x24 and 200x60 the page shows a change of M in
// progress, and then that RabbitMQ is down. q and Ctrl-C end it with exit code 0, and
// restore the terminal.
func TestWatchOnAFleet(t *testing.T) {
	t.Parallel()
	w := newFileSource(t)
	toRabbitMQ := w.cutOff()
	w.set("invoices", fleet.DeclaredTopic("invoices", nil))
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"window": 500}))
	w.start(2)
	far := w.far(40_000)
	w.schedule(orders("invoices", "i", 500, time.Now().Add(time.Hour), time.Hour, 100)...)
	w.consume("orders.due")
	w.send("orders", "o", 500)
	wait.For(t, "the tasks that are due to arrive", func() bool { return w.recorder.Ledger.Count() == 500 })
	small, large := w.watch(80, 24), w.watch(200, 60)
	both := []*fleet.Screen{small, large}
	w.shows(both, "topic orders: M 4, epoch 1, stable", "healthy")

	letGo := w.holdUp(far, 64)
	w.set("orders", fleet.Topic{"shards": 64})
	w.shows(both, "topic orders: M 64, epoch 2, migrating from 4", "[#", "2 of 2 scanners live")
	w.keep(small, "change", 80)
	w.keep(large, "change", 200)

	toRabbitMQ.Stop()
	w.schedule(orders("orders", "late", 100, time.Now(), time.Millisecond, 0)...)
	w.shows(both, "! topics invoices, orders: ", ">! orders", "connection refused")
	w.keep(small, "outage", 80)
	w.keep(large, "outage", 200)

	for _, s := range both {
		check.OK(t, s.Resize(40, 10))
	}
	w.shows(both, "cut: 40x10 is small")
	for i, keys := range []string{"q", "\x03"} {
		check.OK(t, both[i].Type(keys))
		if code, err := both[i].Wait(wait.Context(t)); code != 0 || err != nil {
			t.Errorf("after %q: code %d, %v", keys, code, err)
		}
	}
	check.OK(t, toRabbitMQ.Start())
	letGo()
	w.settled(64)
}

// cutOff puts a proxy between the scanners and RabbitMQ, which the test can stop.
func (w *fixture) cutOff() *toxiproxy.Proxy {
	w.t.Helper()
	u, err := url.Parse(w.settings.RabbitMQURL)
	check.OK(w.t, err)
	proxy := faults.Proxy(w.t, faults.Local, u.Host)
	u.Host = proxy.Listen
	w.scannerEnv = []string{"DUEFLEET_RABBITMQ_URLS=" + u.String()}
	return proxy
}

// watch starts scanner status --watch, and selects topic orders.
func (w *fixture) watch(columns, rows int) *fleet.Screen {
	w.t.Helper()
	s, err := fleet.StartScreen(w.t.Context(), fleet.Command{
		Path: programs.Scanner, Args: []string{"status", "--watch", "--config", w.file(operatorRole)},
	}, columns, rows)
	check.OK(w.t, err)
	w.shows([]*fleet.Screen{s}, "orders")
	check.OK(w.t, s.Type("j"))
	return s
}

// shows waits until each of the terminals shows all parts at once.
func (w *fixture) shows(all []*fleet.Screen, parts ...string) {
	w.t.Helper()
	for _, s := range all {
		text := ""
		defer func() {
			if w.t.Failed() {
				w.t.Logf("the terminal shows\n%s", text)
			}
		}()
		wait.For(w.t, "the page to show "+strings.Join(parts, ", "), rarely(func() bool {
			text = s.Text()
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return false
				}
			}
			return true
		}))
	}
}

// keep writes the contents of a terminal to the folder of -captures.
func (w *fixture) keep(s *fleet.Screen, name string, columns int) {
	w.t.Helper()
	if *captures == "" {
		return
	}
	path := filepath.Join(*captures, name+"_"+map[int]string{80: "80x24", 200: "200x60"}[columns]+".txt")
	check.OK(w.t, fleet.WriteFile(path, []byte(s.Text())))
}
