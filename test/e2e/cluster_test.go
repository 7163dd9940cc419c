package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAClusterByOneAddress: redis.addrs names one node of a Redis Cluster, as AWS's
// configuration endpoint does. The programs find the other masters.
func TestAClusterByOneAddress(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{
		Dir: filepath.Join(t.TempDir(), "redis"), Masters: 3})
	check.OK(t, err)
	t.Cleanup(func() { _ = cluster.Kill() })
	settings := fleet.Settings{
		RedisAddr: cluster.Nodes[1].Addr(), RedisPrefix: "duefleet", RabbitMQURL: servertest.RabbitMQ(t),
		Topics: map[string]fleet.Topic{
			"orders":   fleet.DeclaredTopic("orders", fleet.Topic{"shards": 8}),
			"invoices": fleet.DeclaredTopic("invoices", fleet.Topic{"shards": 8}),
		},
	}
	w := newFixtureOn(t, settings, &redis.UniversalOptions{Addrs: cluster.Addrs()})
	w.start(1)
	w.consume("orders.due")
	out := w.scanner("check", "--connect")
	must(t, out)
	if !strings.Contains(out.Stdout, "3 servers answer") {
		t.Errorf("check --connect prints %s", out.Stdout)
	}
	ids := strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z")
	for _, id := range ids {
		must(t, w.producer("schedule", "--topic", "orders", "--id", id, "--in", "1s"))
	}
	for _, id := range ids {
		check.Until(t, "task "+id, func() bool { return len(w.delivered(id)) == 1 })
	}
	out = run(t, fleet.Command{Path: programs.Producer,
		Args: []string{"__completeNoDesc", "--config", w.config, "schedule", "--topic", ""}})
	if !strings.Contains(out.Stdout, "invoices\norders\n") {
		t.Errorf("a shell offers %s", out.Stdout)
	}
}
