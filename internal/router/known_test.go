package router

import (
	"errors"
	"testing"

	"github.com/duefleet/duefleet/internal/shard"
)

func TestACallerShowsAShardEachPlacementOfOneEpoch(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	router := c.Router("orders")
	c.begin(3)
	c.ok(router.show(c.ctx(), c.p, []int{0})[0])
	other := c.p
	other.Shards = 4
	var moved *shard.MovedError
	if err := router.show(c.ctx(), other, []int{0})[0]; !errors.As(err, &moved) || moved.Placement != c.p {
		t.Fatalf("got %v", err)
	}
}
