package doctor

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

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
