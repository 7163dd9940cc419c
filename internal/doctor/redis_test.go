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

// TestDoctorTellsASilentFleetFromNone: scanners whose user may not send heartbeats run all the
// same, so the advice is to grant the right first.
func TestDoctorTellsASilentFleetFromNone(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	rdb := redis.NewClient(servertest.RedisOptions(server.Addr()).Simple())
	defer rdb.Close()
	check.OK(t, rdb.Do(t.Context(), "ACL", "SETUSER", "least", "on", ">pw", "~*", "&*", "+@all").Err())
	o := newTarget(t, "topics: {}\n")
	o.configure(fmt.Sprintf("redis: {addrs: ['%s'], prefix: x, username: least, password: pw}\n", server.Addr()))
	o.finds("with every right", "fleet", "fail: no scanner runs under prefix x: ")
	check.OK(t, rdb.Do(t.Context(), "ACL", "SETUSER", "least", "-zrangebyscore").Err())
	o.finds("without one", redisRights, "fail: user least may not run zrangebyscore on keys x:* -> ")
	o.finds("without one", "fleet", "fail: no scanner sends heartbeats under prefix x: none runs, or they may not -> "+
		"grant what redis.rights names; if there is no heartbeat 5 seconds later, scanner run --config ")
}
