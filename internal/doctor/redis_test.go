package doctor

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorKnowsAReplica: it names the address to write instead, and makes nothing else of
// what a replica refuses.
func TestDoctorKnowsAReplica(t *testing.T) {
	t.Parallel()
	master, server := servertest.OwnRedis(t), servertest.OwnRedis(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(servertest.RedisOptions(server.Addr()).Simple())
	defer rdb.Close()
	if err := rdb.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	check.Until(t, "the replica to follow", func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	o := newTarget(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n"+intakeTopics)
	o.configure("redis: {addrs: ['" + server.Addr() + "'], prefix: x}\n")
	o.finds("of a replica", "redis.role", fmt.Sprintf("fail: %s is a replica of %s, and takes no writes -> "+
		"set redis.addrs to %s, or redis.master_name", server.Addr(), master.Addr(), master.Addr()))
	all := findings(Examine(t.Context(), o.Target))
	if text := all.String(); strings.Contains(text, "ACL SETUSER") || strings.Contains(text, "no scanner runs") {
		t.Errorf("%s", all)
	}
}
