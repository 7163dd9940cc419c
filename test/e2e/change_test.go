package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	consul "github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/stack"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/test/fleet"
)

// migrating waits until the change to m shards has begun, and answers its epoch.
// It reads Redis itself: the change may be over before a program has started.
func (w *wish) migrating(m int) (epoch int64) {
	w.t.Helper()
	w.await(fmt.Sprintf("a change to %d shards", m), func() bool {
		p := w.placement()
		epoch = p.Epoch
		return p.Phase == shard.Migrating && p.Shards == m
	})
	return epoch
}

func (w *wish) placement() shard.Placement {
	w.t.Helper()
	if w.topic == nil { // made once: it is asked all the time
		store, err := shard.New(w.redis, w.settings.RedisPrefix)
		if err != nil {
			w.t.Fatal(err)
		}
		w.topic = store.Topic("orders")
	}
	p, err := w.topic.Placement(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// settled waits until all changes are over and M is m.
func (w *wish) settled(m int) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d shards, stable", m), func() bool {
		s := w.status().Topic("orders")
		return s.Phase == "stable" && s.Shards == m
	})
}

// far schedules n tasks for the far future.
func (w *wish) far(n int) []fleet.Order {
	w.t.Helper()
	far := orders("orders", "far", n, time.Now().Add(time.Hour), time.Hour, 100)
	w.schedule(far...)
	return far
}

// holdUp makes a change that begins now take some seconds: a task that is due
// soon is delivered where it lies, and the change waits for it.
func (w *wish) holdUp() {
	w.t.Helper()
	w.schedule(orders("orders", "soon", 200, time.Now().Add(8*time.Second), time.Second, 0)...)
}

// TestChangeDuringChange: a wish that comes during a change waits for its end; of
// several the last one counts, also if it leads back to where all began.
func TestChangeDuringChange(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		far := w.far(5000)
		w.holdUp()
		w.set("orders", fleet.Topic{"shards": 12})
		epoch := w.migrating(12)
		w.set("orders", fleet.Topic{"shards": 2})
		w.set("orders", fleet.Topic{"shards": 1})
		w.set("orders", fleet.Topic{"shards": 4})
		w.settled(4)
		// To 12 shards and back: each change takes two epochs, and no other came between.
		if got := w.placement().Epoch; got != epoch+3 {
			w.t.Errorf("the epoch is %d, want %d: the change to 12 shards and one to 4", got, epoch+3)
		}
		w.hasten(far)
		w.check()
	})
}

// TestOneShardAndBack: M = 1 is a shard count like any other.
func TestOneShardAndBack(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		far := w.far(2000)
		for _, m := range []int{1, 5} {
			w.reshard(m)
			w.send("orders", fmt.Sprint("m", m), 50)
		}
		w.hasten(far)
		w.check()
	})
}

// TestManyShards: where each worker's part of the time for moving is less than a
// step a tick, because there are many shards and Redis is far away, a change goes on
// all the same.
func TestManyShards(t *testing.T) {
	t.Parallel()
	w := newFileWish(t)
	w.settings.RedisAddr = farAway(t, w.settings.RedisAddr, 5*time.Millisecond)
	w.begin()
	far := w.far(5000)
	for _, m := range []int{30, 3} {
		w.reshard(m)
	}
	w.hasten(far)
	w.check()
}

// farAway is a server's address with a delay on the way back from there.
func farAway(t *testing.T, addr string, delay time.Duration) string {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", addr)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	latency := fmt.Sprintf(`{"type": "latency", "attributes": {"latency": %d}}`, delay.Milliseconds())
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(latency)); err != nil {
		t.Fatal(err)
	}
	return proxy.Listen
}

// TestAllScannersKilledDuringChange: a change that nobody goes on with waits;
// the scanners that come later end it.
func TestAllScannersKilledDuringChange(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		far := w.far(10_000)
		w.holdUp()
		w.set("orders", fleet.Topic{"shards": 9})
		w.migrating(9)
		for _, s := range w.scanners {
			if err := s.Kill(); err != nil {
				w.t.Fatal(err)
			}
		}
		// Producers go on meanwhile.
		if err := w.recorder.Cancel(w.t.Context(), fleet.Key{Topic: "orders", ID: far[0].ID}); err != nil {
			w.t.Error(err)
		}
		w.send("orders", "meanwhile", 100)
		if p := w.placement(); p.Phase != shard.Migrating {
			w.t.Errorf("the change is %s although nobody was there to end it", p.Phase)
		}
		w.revive()
		w.settled(9)
		w.hasten(far[1:])
		w.check()
	})
}

// revive starts all scanners again.
func (w *wish) revive() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var g errgroup.Group
	for _, s := range w.scanners {
		g.Go(func() error { return s.Start(ctx) })
	}
	if err := g.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// TestStoppedDuringChange: scanners that are told to stop, one after the other,
// in the middle of a change hand it on; nothing arrives twice.
func TestStoppedDuringChange(t *testing.T) {
	both(t, func(w *wish) {
		w.begin()
		far := w.far(10_000)
		w.schedule(orders("orders", "o", 4000, time.Now().Add(time.Second), 8*time.Second, 0)...)
		w.set("orders", fleet.Topic{"shards": 7})
		w.migrating(7)
		for _, s := range w.scanners {
			ctx, cancel := context.WithTimeout(w.t.Context(), patience)
			defer cancel()
			if code, err := s.Stop(ctx); err != nil || code != 0 {
				w.t.Fatalf("stop: code %d, %v", code, err)
			}
			if err := s.Start(ctx); err != nil {
				w.t.Fatal(err)
			}
		}
		w.settled(7)
		w.hasten(far)
		w.check()
	})
}

// TestConsulGoneDuringChange: without Consul a change goes on to its end, the
// settings stay in force, and scanners start; when it is back, so are wishes and
// registrations.
func TestConsulGoneDuringChange(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	server, err := stack.StartConsul(t.Context(), stack.ConsulConfig{Dir: filepath.Join(t.TempDir(), "consul")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	w := consulWish(t, server.Addr(), "duefleet")
	w.begin()
	far := w.far(10_000)
	w.holdUp()
	w.set("orders", fleet.Topic{"shards": 9})
	w.migrating(9)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.scanners[0].Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.scanners[0].Start(ctx); err != nil {
		t.Fatalf("a scanner does not start without Consul: %v", err)
	}
	w.settled(9)
	w.send("orders", "without", 100)
	w.await("tasks without Consul", func() bool { return w.recorder.Ledger.Missing() == len(far) })
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	w.await("the scanners in the catalog of a Consul that came back", func() bool {
		live := w.live()
		return len(live) == 2 && slices.Equal(w.registered(), live)
	})
	w.reshard(3)
	w.hasten(far)
	w.check()
}

// TestRegistration: each scanner is a service with a passing check while it
// serves, and none once it was stopped.
func TestRegistration(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	w.begin()
	w.await("two services that pass their check", func() bool { return len(w.registered()) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := w.scanners[0].Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.registered(); len(got) != 1 {
		t.Errorf("services %q after one of two scanners stopped, want 1", got)
	}
	w.stop()
	if got := w.registered(); len(got) != 0 {
		t.Errorf("services %q after all scanners stopped, want none", got)
	}
	if got := w.notes(""); got != 0 {
		t.Errorf("%d notes after all scanners stopped, want none", got)
	}
}

// live are the instances of the scanners that live, as Redis knows them.
func (w *wish) live() (instances []string) {
	w.t.Helper()
	for _, m := range w.status().Fleet {
		if m.Alive {
			instances = append(instances, m.Instance)
		}
	}
	slices.Sort(instances)
	return instances
}

// registered are the instances that pass their check in Consul, once for each entry.
func (w *wish) registered() (instances []string) {
	w.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: w.settings.ConsulAddr})
	if err != nil {
		w.t.Fatal(err)
	}
	entries, _, err := client.Health().Service("duefleet-scanner", "", true, nil)
	if err != nil {
		return nil // it has just come back
	}
	for _, e := range entries {
		if e.Service.Meta["prefix"] == w.settings.ConsulPrefix {
			instances = append(instances, e.Service.Meta["instance"])
		}
	}
	slices.Sort(instances)
	return instances
}

// TestSettingsWithinASecond: what is written to Consul is in force within a
// second in every scanner, and disturbs nothing that is in flight.
func TestSettingsWithinASecond(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	w.begin()
	w.schedule(orders("orders", "o", 10_000, time.Now().Add(time.Second), 10*time.Second, 0)...)
	w.await("the load", func() bool { return w.recorder.Ledger.Count() > 100 })
	for i, change := range []fleet.Topic{
		{"tick": "50ms"}, {"workers": 7}, {"batch": 3}, {"window": 11}, {"lease": "5s"}, {"rate": 100_000},
		{"max_attempts": 3}, {"backoff": map[string]any{"min": "10ms", "max": "1s"}}, {"routing_key": "orders.due", "tick": "200ms"},
	} {
		must(t, w.scanner(append([]string{"topic", "set", "orders"}, change.Pairs()...)...))
		written := time.Now()
		index := float64(w.index("orders"))
		w.await(fmt.Sprintf("change %d, %v", i, change), func() bool {
			for _, s := range w.scanners {
				if readMetrics(t, s).sum("duefleet_config_applied_index") < index {
					return false
				}
			}
			return true
		})
		if took := time.Since(written); took > time.Second && !raceEnabled {
			t.Errorf("%v was in force after %s, want it within a second", change, took)
		}
	}
	w.await("7 workers in each scanner", func() bool {
		return readMetrics(t, w.scanners[0]).sum("duefleet_workers") == 7 && readMetrics(t, w.scanners[1]).sum("duefleet_workers") == 7
	})
	w.check()
}

// index is when a topic's document was last written.
func (w *wish) index(topic string) uint64 {
	w.t.Helper()
	pair, _, err := w.kv().Get(w.settings.ConsulPrefix+"/topics/"+topic, nil)
	if err != nil || pair == nil {
		w.t.Fatalf("read the document of %s: %v", topic, err)
	}
	return pair.ModifyIndex
}

// TestTopicRemoved: a topic that holds tasks is removed only if its tasks may go
// with it; then the fleet serves it no more, and producers are told.
func TestTopicRemoved(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	w.begin()
	far := orders("orders", "far", 10, time.Now().Add(time.Hour), time.Hour, 0)
	if err := w.recorder.Schedule(t.Context(), far...); err != nil {
		t.Fatal(err)
	}
	checkError(t, "rm of a topic that holds tasks", w.scanner("topic", "rm", "orders"), 1, "10 tasks", "--purge")
	if got := w.status().Topic("orders").Pending; got != 10 {
		t.Fatalf("%d tasks are stored after a removal that was refused, want 10", got)
	}
	must(t, w.scanner("topic", "rm", "orders", "--purge"))
	w.await("no scanner to serve the topic", func() bool {
		for _, s := range w.scanners {
			if readMetrics(t, s).sum("duefleet_workers") != 0 {
				return false
			}
		}
		return len(w.status().Topics) == 0
	})
	out := w.producer("schedule", "--topic", "orders", "--id", "late", "--in", "1s")
	checkError(t, "schedule after the removal", out, 1, "orders")
}

// TestTopicSetWait: topic set --wait returns when the change is over, and tells
// how it goes meanwhile.
func TestTopicSetWait(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	w.begin()
	far := w.far(10_000)
	w.holdUp()
	out := must(t, w.scanner("topic", "set", "orders", "shards=11", "--wait"))
	if s := w.status().Topic("orders"); s.Shards != 11 || s.Phase != "stable" {
		t.Errorf("%d shards, %s, when topic set --wait returned", s.Shards, s.Phase)
	}
	for _, want := range []string{"shards: 4 -> 11", "11 shards, stable"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("it prints %q, want %q in it", out.Stdout, want)
		}
	}
	if !strings.Contains(out.Stderr, "moved") {
		t.Errorf("it tells %q of the progress, want how many were moved", out.Stderr)
	}
	w.hasten(far)
	w.check()
}

// TestProgress: status and metrics show how far a change has come.
func TestProgress(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "consul")
	w := newConsulWish(t)
	w.begin()
	w.far(20_000)
	w.holdUp()
	w.set("orders", fleet.Topic{"shards": 16})
	w.await("the progress in status and metrics", func() bool {
		m := readMetrics(t, w.scanners[0])
		c := w.status().Topic("orders").Change
		return c != nil && c.Moved > 0 && c.Misplaced > 0 && c.Rate > 0 && !c.End.IsZero() &&
			m.sum("duefleet_migrating") == 1 && m.sum("duefleet_misplaced_tasks") > 0 && m.sum("duefleet_moved_tasks_total") > 0 &&
			m.sum("duefleet_move_rate_tasks_per_second") > 0 && m.sum("duefleet_move_left_seconds") > 0
	})
	w.settled(16)
	w.await("metrics without a change", func() bool {
		m := readMetrics(t, w.scanners[0])
		return m.sum("duefleet_migrating") == 0 && m.sum("duefleet_misplaced_tasks") == 0 && m.sum("duefleet_move_left_seconds") == 0
	})
}
