package operate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestReadingAgainAsksFewShards: the first read finds tasks outside the polled shards. The
// second read asks only the polled shards, not every possible one.
func TestReadingAgainAsksFewShards(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	topic, rdb := ordersAt(t, server.Addr(), "duefleet")
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	_, err = topic.Ensure(t.Context(), 4)
	check.OK(t, err)
	check.OK(t, rdb.ZAdd(t.Context(), "duefleet:due:{orders:4000}", redis.Z{Score: 1, Member: "stray"}).Err())
	reader := NewReader(store, "")
	read := func() (zcards int) {
		t.Helper()
		before := calls(t, rdb)
		s, err := reader.Read(t.Context())
		if err != nil || len(s.Topics) != 1 || s.Topics[0].Orphans != 1 || len(s.Topics[0].Notes) != 1 {
			t.Fatalf("got %+v, %v", s, err)
		}
		return calls(t, rdb) - before
	}
	if n := read(); n < 4092 {
		t.Errorf("the first look asks %d times how many tasks a shard holds, want each", n)
	}
	if n := read(); n != 4 {
		t.Errorf("the second look asks %d times, want once for each of 4 shards", n)
	}
	_, err = topic.Begin(t.Context(), fixture.Placement(t, topic), 2)
	check.OK(t, err)
	if n := read(); n < 4092 {
		t.Errorf("after a change of the placement it asks %d times, want each", n)
	}
}

// TestManyShardsAreCountedInTurn: each read after the first counts some shards; all get
// their turn.
func TestManyShardsAreCountedInTurn(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	topic, rdb := ordersAt(t, server.Addr(), "duefleet")
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	const m = 1200
	_, err = topic.Ensure(t.Context(), m)
	check.OK(t, err)
	reader := NewReader(store, "orders")
	read := func() int64 {
		t.Helper()
		s, err := reader.Read(t.Context())
		if err != nil || len(s.Topics[0].PerShard) != m {
			t.Fatalf("got %+v, %v", s, err)
		}
		return s.Topics[0].Pending
	}
	if n := read(); n != 0 {
		t.Fatalf("%d tasks are stored, want none", n)
	}
	for at := range m {
		check.OK(t, rdb.ZAdd(t.Context(), fmt.Sprintf("duefleet:due:{orders:%d}", at),
			redis.Z{Score: 1e15, Member: "o"}).Err())
	}
	before := calls(t, rdb)
	for _, want := range []int64{512, 1024, 1200} {
		if n := read(); n != want {
			t.Errorf("%d tasks are seen, want %d", n, want)
		}
	}
	if n := calls(t, rdb) - before; n != 3*512 {
		t.Errorf("three looks asked %d shards, want 512 each", n)
	}
}

// calls returns how many ZCARDs Redis has run.
func calls(t *testing.T, rdb redis.UniversalClient) (n int) {
	t.Helper()
	text, err := rdb.Info(t.Context(), "commandstats").Result()
	check.OK(t, err)
	_, text, _ = strings.Cut(text, "cmdstat_zcard:")
	_, _ = fmt.Sscanf(text, "calls=%d,", &n)
	return n
}
