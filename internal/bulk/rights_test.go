package bulk

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAnOperatorsRightsAreEnough: the user of deploy/redis/operator.acl makes each change,
// also while the shard count changes.
func TestAnOperatorsRightsAreEnough(t *testing.T) {
	t.Parallel()
	server := servertest.RedisWithUsers(t, filepath.Join("..", "..", "deploy", "redis"))
	s := stockIn(t, fixture.At(t, server.Addr(), "duefleet"), 1)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "duefleet-operator", Password: "operator"})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	own := s.topic
	for _, moving := range []bool{false, true} {
		s.topic = own
		s.put(task.In(time.Hour), names("a", 20)...)
		if moving {
			_, err := own.Begin(t.Context(), fixture.Placement(t, own), 4)
			check.OK(t, err)
		}
		s.topic = store.Topic(fixture.Orders)
		for _, verb := range []Verb{Move, RunNow, Cancel} {
			s.run(Change{Verb: verb, By: time.Hour}, Filter{}, Counts{Matched: 20, Changed: 20})
		}
	}
}
