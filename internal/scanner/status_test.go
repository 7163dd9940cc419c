package scanner

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
)

func TestStatusTellsOfTwoPlacementsOfOneEpoch(t *testing.T) {
	t.Parallel()
	addr, prefix := stacktest.Redis(t)
	rdb := redis.NewUniversalClient(stacktest.RedisOptions(addr))
	defer rdb.Close()
	store, err := shard.New(rdb, prefix)
	if err != nil {
		t.Fatal(err)
	}
	orders := store.Topic("orders")
	p, err := orders.Ensure(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	notes := func() []string {
		t.Helper()
		s, err := ReadStatus(t.Context(), store, "orders")
		if err != nil {
			t.Fatal(err)
		}
		return s.Topics[0].Notes
	}
	if got := notes(); len(got) != 0 {
		t.Errorf("notes of a healthy topic: %q", got)
	}
	lost := p
	lost.Shards = 3
	if _, err := orders.Touch(t.Context(), 1, lost); err != nil {
		t.Fatal(err)
	}
	got := notes()
	if len(got) != 1 || !strings.Contains(got[0], lost.String()) || !strings.Contains(got[0], p.String()) {
		t.Errorf("notes: %q", got)
	}
}
