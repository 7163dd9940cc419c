package shard

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
)

// TestClocksOfACluster: every master's clock is read. A master that is down leaves the
// readings of the others.
func TestClocksOfACluster(t *testing.T) {
	t.Parallel()
	cluster := clusterOfOwn(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := New(rdb, "duefleet")
	check.OK(t, err)
	first, err := store.Clocks(t.Context())
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
	second, err := store.Clocks(t.Context())
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
