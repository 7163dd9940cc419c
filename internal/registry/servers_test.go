package registry_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestWarnings: a Redis as in docs/deploy.md has no warnings. Each setting that may lose
// acknowledged tasks is named while it is set. A user with the rights in deploy/redis may
// read the settings.
func TestWarnings(t *testing.T) {
	t.Parallel()
	server := servertest.RedisWithUsers(t, filepath.Join("..", "..", "deploy", "redis"))
	admin := fixture.Client(t, server.Addr())
	as := func(role string) *registry.Registry {
		options := fixture.Options(server.Addr())
		options.Username, options.Password = "duefleet-"+role, role
		rdb := redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = rdb.Close() })
		store, err := shard.New(rdb, "duefleet")
		check.OK(t, err)
		return store.Registry()
	}
	scanner := as("scanner")
	for _, step := range []struct{ key, value, eviction, persistence string }{
		{"maxmemory", "0", "", ""},
		{"maxmemory", "100mb", "", ""},
		{"maxmemory-policy", "allkeys-lru", server.Addr() + " evicts tasks at maxmemory", ""},
		{"maxmemory-policy", "volatile-ttl", "tasks are repeated", ""},
		{"appendonly", "no", "volatile-ttl", "CONFIG SET appendonly yes"},
		{"maxmemory", "0", "", server.Addr() + " keeps no append-only file"}, // nothing is evicted without
		{"appendonly", "yes", "", ""},
	} {
		check.OK(t, admin.ConfigSet(t.Context(), step.key, step.value).Err())
		all, err := scanner.Inspect(t.Context())
		check.OK(t, err)
		known := all.Warnings
		for warning, want := range map[registry.Warning]string{
			registry.Eviction: step.eviction, registry.Persistence: step.persistence,
		} {
			got, told := known[warning]
			if !told || (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s %s: %s is %q, told %v, want %q", step.key, step.value, warning, got, told, want)
			}
		}
	}
	if _, err := as("producer").Inspect(t.Context()); !luascript.Denied(err) {
		t.Errorf("who may not ask: %v", err)
	}
}

// TestWarningsOfACluster: the settings of every master are checked.
func TestWarningsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	one := redis.NewClient(&redis.Options{Addr: cluster.Nodes[1].Addr()})
	t.Cleanup(func() { _ = one.Close() })
	check.OK(t, one.ConfigSet(t.Context(), "appendonly", "no").Err())
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	all, err := store.Registry().Inspect(t.Context())
	check.OK(t, err)
	known := all.Warnings
	why, told := known[registry.Eviction]
	if persistence := known[registry.Persistence]; !strings.HasPrefix(persistence, one.Options().Addr+" keeps no") ||
		strings.Contains(persistence, ";") || !told || why != "" {
		t.Errorf("the warnings are %q", known)
	}
}

// TestMemoryOfACluster: the fullest master comes first.
func TestMemoryOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	for i, limit := range []string{"0", "100mb", "1gb"} {
		one := redis.NewClient(&redis.Options{Addr: cluster.Nodes[i].Addr()})
		check.OK(t, one.ConfigSet(t.Context(), "maxmemory", limit).Err())
		check.OK(t, one.Close())
	}
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	all, err := store.Registry().Inspect(t.Context())
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
}

// TestClocksOfACluster: every master's clock is read. A master that is down leaves the
// readings of the others.
func TestClocksOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	first, err := store.Registry().Clocks(t.Context())
	check.OK(t, err)
	addrs := map[string]bool{}
	for _, c := range first {
		addrs[c.Addr] = true
		if c.Ahead().Abs() > c.Uncertain+time.Millisecond || c.Uncertain <= 0 {
			t.Errorf("%s is %s ahead, uncertain by %s", c.Addr, c.Ahead(), c.Uncertain)
		}
	}
	if len(first) != 3 || len(addrs) != 3 {
		t.Fatalf("read the clocks of %v", addrs)
	}
	check.OK(t, cluster.Nodes[1].Kill())
	second, err := store.Registry().Clocks(t.Context())
	if err == nil || len(second) != 2 {
		t.Errorf("with a dead master: %v, %v", second, err)
	}
	set := first[0]
	set.At = set.At.Add(time.Minute)
	set.Read = set.Read.Add(time.Second)
	if moved := set.Moved(first[0]); moved != 59*time.Second {
		t.Errorf("a clock that was set moved by %s", moved)
	}
}
