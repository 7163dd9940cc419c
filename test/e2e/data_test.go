package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestALossIsReportedUntilSomebodyAcceptsIt: Redis is emptied while two scanners run with
// Consul. Status reports it, also after all scanners restarted, and the fleet goes on to
// deliver. It is healthy again once an operator accepted the data.
func TestALossIsReportedUntilSomebodyAcceptsIt(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	// This task isn't in the ledger, since it will be lost.
	later := producer.Request{Topic: "orders", ID: "later", When: producer.In(time.Hour)}
	_, err := w.recorder.Client.Schedule(t.Context(), later)
	check.OK(t, err)
	identity := func() string { return w.redis.HGet(t.Context(), w.settings.RedisPrefix+":identity", "value").Val() }
	check.Until(t, "the identity in Consul", rarely(func() bool {
		pair, _, err := w.kv().Get(w.settings.ConsulPrefix+"/identity/"+w.settings.RedisPrefix, nil)
		return err == nil && pair != nil && string(pair.Value) == identity()
	}))
	first := identity()
	healthy := rarely(func() bool { return w.scanner("status", "--exit-code").Code == 0 })
	check.Until(t, "a healthy fleet", healthy)
	w.empty()
	reported := rarely(func() bool {
		out := w.scanner("status", "--exit-code")
		return out.Code == 4 && strings.Contains(out.Stderr, "redis lost the data of the fleet: "+first+" is expected")
	})
	check.Until(t, "the loss to be reported", reported)
	w.stop()
	w.start(2)
	check.Until(t, "the loss to be reported after a restart", reported)
	w.send("orders", "meanwhile", 20)
	check.Until(t, "tasks to be delivered", func() bool { return w.recorder.Ledger.Missing() == 0 })
	if id := identity(); id != "" {
		t.Errorf("redis got the identity %s, and %s is expected", id, first)
	}
	checkError(t, "accept without a terminal", w.scanner("data", "accept"), 2, first, "--yes")
	if out := must(t, w.scanner("data", "accept", "--yes")); !strings.Contains(out.Stdout, "replaces "+first) {
		t.Errorf("accept says %q", out.Stdout)
	}
	check.Until(t, "a healthy fleet", healthy)
	w.stop()
	w.start(2)
	check.Until(t, "the second identity in Consul", rarely(func() bool {
		pair, _, err := w.kv().Get(w.settings.ConsulPrefix+"/identity/"+w.settings.RedisPrefix, nil)
		return err == nil && pair != nil && identity() == string(pair.Value)+" replaces "+first
	}))
	check.Until(t, "a healthy fleet after another restart", healthy)
	w.check()
}

// empty removes all keys of the fleet, as a Redis that was replaced by an empty one has
// none.
func (w *fixture) empty() {
	w.t.Helper()
	empty := func(ctx context.Context, server *redis.Client) error {
		keys := server.Scan(ctx, 0, w.settings.RedisPrefix+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := server.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	}
	switch rdb := w.redis.(type) {
	case *redis.ClusterClient:
		check.OK(w.t, rdb.ForEachMaster(w.t.Context(), empty))
	case *redis.Client:
		check.OK(w.t, empty(w.t.Context(), rdb))
	}
}
