package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// migrating waits until the change to m shards has begun, and returns its epoch.
func (w *source) migrating(m int) (epoch int64) {
	w.t.Helper()
	check.Until(w.t, fmt.Sprintf("a change to %d shards", m), func() bool {
		p := w.placement()
		epoch = p.Epoch
		return p.Phase == shard.Migrating && p.Shards == m
	})
	return epoch
}

// ordersTopic returns topic orders in Redis. It makes the value once and keeps it,
// because tests call it often.
func (w *source) ordersTopic() *shard.Topic {
	w.t.Helper()
	if w.topic == nil {
		store, err := shard.New(w.redis, w.settings.RedisPrefix)
		check.OK(w.t, err)
		w.topic = store.Topic("orders")
	}
	return w.topic
}

func (w *source) placement() shard.Placement {
	w.t.Helper()
	p, err := w.ordersTopic().Placement(w.t.Context())
	check.OK(w.t, err)
	return p
}

// settled waits until all changes have ended with M = m.
func (w *source) settled(m int) {
	w.t.Helper()
	moved := func() int {
		change, err := w.ordersTopic().Progress(w.t.Context(), w.placement())
		check.OK(w.t, err)
		return int(change.Moved) + change.Clean
	}
	count := 0
	check.Progress(w.t, fmt.Sprintf("%d shards, stable", m), func() int { return count }, rarely(func() bool {
		p := w.placement()
		if p.Phase == shard.Stable && p.Shards == m {
			return true
		}
		count = int(p.Epoch)<<32 + moved()
		return false
	}))
}

// far schedules n tasks that are due in the far future.
func (w *source) far(n int) []fleet.Order {
	w.t.Helper()
	far := orders("orders", "far", n, time.Now().Add(time.Hour), time.Hour, 100)
	w.schedule(far...)
	return far
}

// holdUp keeps the next change, to m shards, from ending until the caller calls letGo. It
// holds the lease of one task that would have to move.
func (w *source) holdUp(far []fleet.Order, m int) (letGo func()) {
	w.t.Helper()
	p := w.placement()
	i := slices.IndexFunc(far, func(o fleet.Order) bool { return shard.Place(o.ID, m) != p.New(o.ID) })
	at := p.New(far[i].ID)
	export, err := w.ordersTopic().Shard(at).Export(w.t.Context(), p, shard.Export{
		Claimant: "test", Request: "1", Lease: time.Hour, IDs: []string{far[i].ID},
	})
	if err != nil || len(export.Tasks) != 1 {
		w.t.Fatalf("%d tasks exported, want 1: %v", len(export.Tasks), err)
	}
	return func() {
		w.t.Helper()
		lease := shard.Lease{ID: far[i].ID, Token: export.Token}
		if n, err := w.topic.Shard(at).Release(w.t.Context(), []shard.Release{{Lease: lease, Exported: true}}); err != nil ||
			n != 1 {
			w.t.Fatalf("%d tasks given back, want 1: %v", n, err)
		}
	}
}

// TestChangeDuringChange: a shard count set during a change waits for the end of that
// change. If several are set, only the last one applies, even if it is the initial one.
func TestChangeDuringChange(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		far := w.far(2000)
		letGo := w.holdUp(far, 12)
		w.set("orders", fleet.Topic{"shards": 12})
		epoch := w.migrating(12)
		w.set("orders", fleet.Topic{"shards": 2})
		w.set("orders", fleet.Topic{"shards": 1})
		w.set("orders", fleet.Topic{"shards": 4})
		letGo()
		w.settled(4)
		// Each change takes two epochs. There were only the changes to 12 shards and back.
		if got := w.placement().Epoch; got != epoch+3 {
			w.t.Errorf("the epoch is %d, want %d: the change to 12 shards and one to 4", got, epoch+3)
		}
		w.hasten(far)
		w.check()
	})
}

// TestManyShards: a change makes progress even if each worker's share of the time for
// moving allows less than one step per tick. This happens with many shards and a distant
// Redis.
func TestManyShards(t *testing.T) {
	t.Parallel()
	w := newFileSource(t)
	w.settings.RedisAddr = farAway(t, w.settings.RedisAddr, 5*time.Millisecond)
	w.begin()
	far := w.far(3000)
	for _, m := range []int{30, 3} {
		w.reshard(m)
	}
	w.hasten(far)
	w.check()
}

// farAway returns an address at which the server's replies are delayed. A cluster's
// addresses are returned unchanged, because its nodes announce their own addresses.
func farAway(t *testing.T, addr string, delay time.Duration) string {
	t.Helper()
	if strings.Contains(addr, ",") {
		return addr
	}
	proxy := faults.Proxy(t, faults.Local, addr)
	faults.Toxic(t, proxy, "far", "latency", "downstream", map[string]any{"latency": delay.Milliseconds()})
	return proxy.Listen
}

// TestAllScannersKilledDuringChange: without scanners a change waits; scanners that start
// later end it.
func TestAllScannersKilledDuringChange(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		far := w.far(2000)
		letGo := w.holdUp(far, 9)
		w.set("orders", fleet.Topic{"shards": 9})
		w.migrating(9)
		for _, s := range w.scanners {
			check.OK(w.t, s.Kill())
		}
		// Producers keep working meanwhile.
		last := len(far) - 1
		if err := w.recorder.Cancel(w.t.Context(), fleet.Key{Topic: "orders", ID: far[last].ID}); err != nil {
			w.t.Error(err)
		}
		w.send("orders", "meanwhile", 100)
		if p := w.placement(); p.Phase != shard.Migrating {
			w.t.Errorf("the change is %s although nobody was there to end it", p.Phase)
		}
		letGo()
		w.revive()
		w.settled(9)
		w.hasten(far[:last])
		w.check()
	})
}

// revive starts all scanners again.
func (w *source) revive() {
	w.t.Helper()
	ctx := check.Context(w.t)
	var g errgroup.Group
	for _, s := range w.scanners {
		g.Go(func() error { return s.Start(ctx) })
	}
	check.OK(w.t, g.Wait())
}

// TestStoppedDuringChange: scanners stop one after the other during a change, and the
// others continue it. Nothing arrives twice.
func TestStoppedDuringChange(t *testing.T) {
	both(t, func(w *source) {
		w.begin()
		far := w.far(2000)
		w.schedule(orders("orders", "o", 2000, time.Now().Add(time.Second), 4*time.Second, 0)...)
		letGo := w.holdUp(far, 7)
		w.set("orders", fleet.Topic{"shards": 7})
		w.migrating(7)
		for _, s := range w.scanners {
			if code, err := w.stopOne(s); err != nil || code != 0 {
				w.t.Fatalf("stop: code %d, %v", code, err)
			}
			check.OK(w.t, s.Start(check.Context(w.t)))
		}
		letGo()
		w.settled(7)
		w.hasten(far)
		w.check()
	})
}

// TestConsulGoneDuringChange: without Consul a change continues to its end, settings stay
// in force, and scanners can start. When Consul is back, changes of settings and
// registrations work again.
func TestConsulGoneDuringChange(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	server, err := servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: filepath.Join(t.TempDir(), "consul")})
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	w := consulSource(t, server.Addr(), "duefleet")
	w.begin()
	far := w.far(2000)
	letGo := w.holdUp(far, 9)
	w.set("orders", fleet.Topic{"shards": 9})
	w.migrating(9)
	check.OK(t, server.Kill())
	check.OK(t, w.scanners[0].Kill())
	if err := w.scanners[0].Start(check.Context(t)); err != nil {
		t.Fatalf("a scanner does not start without Consul: %v", err)
	}
	letGo()
	w.settled(9)
	w.send("orders", "without", 100)
	check.Progress(t, "tasks without Consul", w.recorder.Ledger.Count,
		func() bool { return w.recorder.Ledger.Missing() == len(far) })
	check.OK(t, server.Restart(check.Context(t)))
	check.Until(t, "the scanners in the catalog of a Consul that came back", rarely(func() bool {
		live := w.live()
		return len(live) == 2 && slices.Equal(w.registered(true), live)
	}))
	w.reshard(3)
	w.hasten(far)
	w.check()
}

// TestRegistration: each scanner is a service with a passing check while it serves. Its
// service is removed when it stops.
func TestRegistration(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	check.Until(t, "two services that pass their check", rarely(func() bool { return len(w.registered(true)) == 2 }))
	_, err := w.stopOne(w.scanners[0])
	check.OK(t, err)
	if got := w.registered(false); len(got) != 1 {
		t.Errorf("services %q after one of two scanners stopped, want 1", got)
	}
	check.Until(t, "the other to pass its check", rarely(func() bool { return len(w.registered(true)) == 1 }))
	w.stop()
	if got := w.registered(false); len(got) != 0 {
		t.Errorf("services %q after all scanners stopped, want none", got)
	}
	if got := w.notes(""); got != 0 {
		t.Errorf("%d notes after all scanners stopped, want none", got)
	}
}

// live returns the instances of the live scanners, according to Redis.
func (w *source) live() (instances []string) {
	w.t.Helper()
	for _, m := range w.status().Fleet {
		if m.Alive {
			instances = append(instances, m.Instance)
		}
	}
	slices.Sort(instances)
	return instances
}

// registered returns the instances in Consul, once for each entry. With passing it
// returns only those whose check passes.
func (w *source) registered(passing bool) (instances []string) {
	w.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: w.settings.ConsulAddr})
	check.OK(w.t, err)
	entries, _, err := client.Health().Service("duefleet-scanner", "", passing, nil)
	if err != nil {
		return []string{err.Error()} // Consul may have just restarted; this text isn't an instance's name
	}
	for _, e := range entries {
		if e.Service.Meta["prefix"] == w.settings.ConsulPrefix {
			instances = append(instances, e.Service.Meta["instance"])
		}
	}
	slices.Sort(instances)
	return instances
}

// TestSettingsInForce: every scanner applies settings written to Consul, and tasks in
// flight aren't disturbed.
func TestSettingsInForce(t *testing.T) {
	t.Parallel()
	testSettings(t, func(fleet.Topic, time.Duration) {})
}

// testSettings changes one setting after the other under load. For each it calls tell
// with the time until the setting was in force.
func testSettings(t *testing.T, tell func(change fleet.Topic, took time.Duration)) {
	t.Helper()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	w.schedule(orders("orders", "o", 10_000, time.Now().Add(time.Second), 10*time.Second, 0)...)
	w.awaitCount(100)
	for i, change := range []fleet.Topic{
		{"tick": "50ms"}, {"workers": 7}, {"batch": 3}, {"window": 11}, {"lease": "50s"}, {"rate": 100_000},
		{"max_attempts": 3}, {"history": "1h"}, {"backoff": map[string]any{"min": "10ms", "max": "1s"}},
		{"routing_key": "orders.due", "tick": "200ms"},
	} {
		must(t, w.scanner(append([]string{"topic", "set", "orders", "--no-wait"}, change.Pairs()...)...))
		written := time.Now()
		index := float64(w.index("orders"))
		check.Progress(t, fmt.Sprintf("change %d, %v", i, change), w.recorder.Ledger.Count, rarely(func() bool {
			for _, s := range w.scanners {
				if readMetrics(t, s).sum("duefleet_config_applied_index") < index {
					return false
				}
			}
			return true
		}))
		tell(change, time.Since(written))
	}
	tries := 0
	check.Until(t, "7 workers in each scanner", rarely(func() bool {
		tries++ // a topic without due tasks sleeps, and has no workers
		w.schedule(orders("orders", fmt.Sprint("awake", tries), 1, time.Now(), 0, 0)...)
		return readMetrics(t, w.scanners[0]).sum("duefleet_workers") == 7 &&
			readMetrics(t, w.scanners[1]).sum("duefleet_workers") == 7
	}))
	w.check()
}

// index returns the Consul index of a topic's last write.
func (w *source) index(topic string) uint64 {
	w.t.Helper()
	pair, _, err := w.kv().Get(w.settings.ConsulPrefix+"/topics/"+topic, nil)
	if err != nil || pair == nil {
		w.t.Fatalf("read the document of %s: %v", topic, err)
	}
	return pair.ModifyIndex
}

// TestProgress: status, metrics and topic set --wait show a change's progress. topic set
// --wait returns when the change has ended.
func TestProgress(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	far := w.far(3000)
	letGo := w.holdUp(far, 11)
	var told, drawn check.Log
	set := func(told *check.Log, terminal bool) <-chan fleet.Output {
		ended := make(chan fleet.Output, 1)
		go func() {
			defer close(ended)
			out, err := fleet.Command{
				Path: programs.Scanner, Args: []string{"topic", "set", "orders", "shards=11", "--wait", "--config",
					w.file(operatorRole)},
				Told: told, Terminal: terminal,
			}.Run(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			ended <- out
		}()
		return ended
	}
	ended := set(&told, false)
	check.Until(t, "the progress in status and metrics", rarely(func() bool {
		moved := 0.0 // one scanner may move all tasks
		for _, s := range w.scanners {
			moved += readMetrics(t, s).sum("duefleet_moved_tasks_total")
		}
		m := readMetrics(t, w.scanners[0])
		c := w.status().Topic("orders").Change
		return c != nil && c.Moved > 0 && c.Misplaced > 0 && c.Rate > 0 && !c.End.IsZero() &&
			m.sum("duefleet_migrating") == 1 && m.sum("duefleet_misplaced_tasks") > 0 && moved > 0 &&
			m.sum("duefleet_move_rate_tasks_per_second") > 0 && m.sum("duefleet_move_left_seconds") > 0
	}))
	check.Until(t, "topic set --wait to tell how many were moved",
		func() bool { return strings.Contains(told.String(), "moved") })
	drew := set(&drawn, true) // the document has this value already, but --wait still waits for the change
	check.Until(t, "topic set --wait to draw a bar on a terminal", func() bool {
		return strings.Contains(drawn.String(), "moving orders") && strings.Contains(drawn.String(), "%")
	})
	select {
	case <-drew:
		t.Fatal("topic set --wait on a terminal returned before the change was over")
	case <-ended:
		t.Fatal("topic set --wait returned before the change was over")
	default:
	}
	letGo()
	w.settled(11)
	out := must(t, check.Receive(t, "topic set --wait to return", ended))
	for _, want := range []string{"shards: 4 -> 11", "11 shards, stable"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("it prints %q, want %q in it", out.Stdout, want)
		}
	}
	out = must(t, check.Receive(t, "topic set --wait on a terminal to return", drew))
	if !strings.Contains(out.Stdout, "11 shards, stable") {
		t.Errorf("on a terminal it prints %q, want 11 shards, stable", out.Stdout)
	}
	if strings.Contains(told.String(), "\r") {
		t.Errorf("where there is no terminal it draws: %q", told.String())
	}
	check.Until(t, "metrics without a change", rarely(func() bool {
		m := readMetrics(t, w.scanners[0])
		return m.sum("duefleet_migrating") == 0 && m.sum("duefleet_misplaced_tasks") == 0 &&
			m.sum("duefleet_move_left_seconds") == 0
	}))
	w.hasten(far)
	w.check()
}
