package shard

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestWarnings: a Redis as in docs/deploy.md has no warnings. Each setting that may lose
// acknowledged tasks is named while it is set. A user with the rights in deploy/redis may
// read the settings.
func TestWarnings(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	store, err := New(g.as("scanner", 0), "duefleet")
	g.ok(err)
	for _, step := range []struct{ key, value, eviction, persistence string }{
		{"maxmemory", "0", "", ""},
		{"maxmemory", "100mb", "", ""},
		{"maxmemory-policy", "allkeys-lru", g.addr + " evicts tasks at maxmemory", ""},
		{"maxmemory-policy", "volatile-ttl", "tasks are repeated", ""},
		{"appendonly", "no", "volatile-ttl", "CONFIG SET appendonly yes"},
		{"maxmemory", "0", "", g.addr + " keeps no append-only file"}, // nothing is evicted without
		{"appendonly", "yes", "", ""},
	} {
		g.ok(g.rdb.ConfigSet(t.Context(), step.key, step.value).Err())
		all, err := store.Inspect(t.Context())
		g.ok(err)
		known := all.Warnings
		for warning, want := range map[Warning]string{Eviction: step.eviction, Persistence: step.persistence} {
			got, told := known[warning]
			if !told || (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s %s: %s is %q, told %v, want %q", step.key, step.value, warning, got, told, want)
			}
		}
	}
	if _, err := g.asked("producer").Inspect(t.Context()); !Denied(err) {
		t.Errorf("who may not ask: %v", err)
	}
}

// asked is the store as a role sees it.
func (g *guarded) asked(role string) *Store {
	g.t.Helper()
	store, err := New(g.as(role, 0), "duefleet")
	g.ok(err)
	return store
}

// clusterOfOwn starts a Redis Cluster of three masters for one test.
func clusterOfOwn(t *testing.T) *servers.RedisCluster {
	t.Helper()
	servertest.Need(t, "redis-server")
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{Dir: t.TempDir(), Masters: 3})
	check.OK(t, err)
	t.Cleanup(func() { _ = cluster.Kill() })
	return cluster
}

// TestWarningsOfACluster: the settings of every master are checked.
func TestWarningsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := clusterOfOwn(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	one := redis.NewClient(&redis.Options{Addr: cluster.Nodes[1].Addr()})
	t.Cleanup(func() { _ = one.Close() })
	check.OK(t, one.ConfigSet(t.Context(), "appendonly", "no").Err())
	store, err := New(rdb, "duefleet")
	check.OK(t, err)
	all, err := store.Inspect(t.Context())
	check.OK(t, err)
	known := all.Warnings
	why, told := known[Eviction]
	if persistence := known[Persistence]; !strings.HasPrefix(persistence, one.Options().Addr+" keeps no") ||
		strings.Contains(persistence, ";") || !told || why != "" {
		t.Errorf("the warnings are %q", known)
	}
}

// TestWhatRedisDoesNotTellIsNoWarning: a service may leave lines of INFO out.
func TestWhatRedisDoesNotTellIsNoWarning(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# Memory\r\nmaxmemory_policy:allkeys-lru\r\n", "# Persistence\r\nrdb_saves:1\r\n"} {
		if known := warningsOf(text); len(known) > 0 {
			t.Errorf("%q tells %q", text, known)
		}
	}
	if known := warningsOf("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"); len(known) != 2 ||
		known[Eviction]+known[Persistence] != "" {
		t.Errorf("the warnings are %q", known)
	}
}

// TestMemoryOfACluster: the fullest master comes first.
func TestMemoryOfACluster(t *testing.T) {
	t.Parallel()
	cluster := clusterOfOwn(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	for i, limit := range []string{"0", "100mb", "1gb"} {
		one := redis.NewClient(&redis.Options{Addr: cluster.Nodes[i].Addr()})
		check.OK(t, one.ConfigSet(t.Context(), "maxmemory", limit).Err())
		check.OK(t, one.Close())
	}
	store, err := New(rdb, "duefleet")
	check.OK(t, err)
	all, err := store.Inspect(t.Context())
	check.OK(t, err)
	if len(all.Memory) != 3 {
		t.Fatalf("got %+v", all.Memory)
	}
	for i, want := range []struct {
		node int
		most int64
	}{{1, 100 << 20}, {2, 1 << 30}, {0, 0}} {
		m := all.Memory[i]
		if m.Addr != cluster.Nodes[want.node].Addr() || m.Max != want.most || m.Used < 1e5 || m.Used > 50e6 || m.Evicts {
			t.Errorf("%d: got %+v, want node %d", i, m, want.node)
		}
	}
	if m, told := memoryOf("maxmemory:100\r\n"); told {
		t.Errorf("without the used memory: %+v", m)
	}
	m, told := memoryOf("used_memory:95\r\nmem_not_counted_for_evict:5\r\nmaxmemory:100\r\n" +
		"maxmemory_policy:allkeys-lru\r\n")
	if !told || m.Share() != 0.9 || !m.Evicts {
		t.Errorf("with memory that doesn't count: %+v", m)
	}
}
