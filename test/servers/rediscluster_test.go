package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestRedisCluster: a cluster serves all slots, a slot moves with its keys, and a replica
// takes over from a dead master.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	ctx := t.Context()
	c, err := servers.StartRedisCluster(ctx, servers.RedisClusterConfig{Dir: t.TempDir(), Masters: 3, Replicas: 1,
		Timeout: 5 * time.Second})
	check.OK(t, err)
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	for _, key := range []string{"a{1}", "b{1}", "c{2}", "d{3}"} {
		check.OK(t, client.Set(ctx, key, key, 0).Err())
	}
	from := master(t, c, "{1}")
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	slot, err := client.ClusterKeySlot(ctx, "{1}").Result()
	check.OK(t, err)
	check.OK(t, c.MoveSlot(ctx, int(slot), to, 0))
	if now := master(t, c, "{1}"); now != to {
		t.Errorf("the slot is at %s, want %s", now.Addr(), to.Addr())
	}
	for _, key := range []string{"a{1}", "b{1}"} {
		if got, err := client.Get(ctx, key).Result(); got != key {
			t.Errorf("after its slot moved %s holds %q, %v", key, got, err)
		}
	}
	check.OK(t, to.Kill())
	check.Until(t, "a replica to take over", func() bool {
		now, err := c.Master(ctx, "{1}")
		return err == nil && now != to
	})
}

func master(t *testing.T, c *servers.RedisCluster, key string) *servers.Redis {
	t.Helper()
	n, err := c.Master(t.Context(), key)
	check.OK(t, err)
	return n
}

func TestRedisClusterNeedsAMajority(t *testing.T) {
	t.Parallel()
	_, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{Dir: t.TempDir(), Masters: 2})
	if err == nil || !strings.Contains(err.Error(), "at least 3") {
		t.Errorf("two masters: %v, want an error that says at least 3", err)
	}
}
