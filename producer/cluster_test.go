package producer

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestOneAddressOfACluster: the options name one node, as AWS's configuration endpoint
// does. The client finds the other masters, and waits for a replica of each. If the
// options name another database than 0, the server's refusal says so.
func TestOneAddressOfACluster(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{
		Dir: filepath.Join(t.TempDir(), "redis"), Masters: 3, Replicas: 1})
	check.OK(t, err)
	t.Cleanup(func() { _ = cluster.Kill() })
	fixture.At(t, strings.Join(cluster.Addrs(), ","), "duefleet").Serve(t, 16)
	for protocol, node := range map[int]*servers.Redis{2: cluster.Nodes[0], 3: cluster.Nodes[2]} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			options := fixture.Options(node.Addr())
			options.Protocol = protocol
			c, err := New(Config{Options: options, MinReplicas: 1})
			check.OK(t, err)
			t.Cleanup(func() { _ = c.Close() })
			var requests []Request
			var ids []string
			for i := range 64 {
				ids = append(ids, fmt.Sprintf("%d-%d", protocol, i))
				requests = append(requests, request(ids[i], In(time.Hour)))
			}
			for _, r := range c.ScheduleMany(t.Context(), requests) {
				check.OK(t, r.Err)
			}
			for _, id := range ids {
				_, err := c.Get(t.Context(), orders, id)
				check.OK(t, err)
			}
			for _, err := range c.CancelMany(t.Context(), orders, ids) {
				check.OK(t, err)
			}
		})
	}
	c, err := New(Config{Options: &redis.UniversalOptions{Addrs: []string{cluster.Nodes[0].Addr()}, DB: 1}})
	check.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Schedule(t.Context(), request("a", Now()))
	if err == nil || !strings.Contains(err.Error(), "SELECT is not allowed in cluster mode") {
		t.Errorf("another database: got %v", err)
	}
}
