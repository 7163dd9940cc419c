package scanner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/wait"
)

// slowSource is one whose answers are on their way while its lock is held.
type slowSource struct {
	config.Source
	held  sync.Mutex
	reads atomic.Int64
}

func (s *slowSource) Read(ctx context.Context, topic string) (config.Document, bool, error) {
	doc, there, err := s.Source.Read(ctx, topic)
	s.reads.Add(1)
	s.held.Lock()
	defer s.held.Unlock()
	return doc, there, err
}

func TestAShardCountThatIsAppliedWhileTheLastOneIsReadIsHeeded(t *testing.T) {
	t.Parallel()
	slow := &slowSource{}
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4")}, func(s config.Source) config.Source {
		slow.Source = s
		return slow
	})
	_, err := l.topic("orders").Ensure(t.Context(), 4)
	l.ok(err)
	slow.held.Lock()
	l.start()
	wait.For(t, "4 shards to be read", func() bool { return slow.reads.Load() == 1 })
	l.write(map[string]string{"orders": declaring("orders", "shards: 6")})
	wait.For(t, "6 shards to be applied", func() bool { return l.served("orders").settings().Shards == 6 })
	slow.held.Unlock()
	wait.For(t, "6 shards", func() bool {
		p, err := l.topic("orders").Placement(t.Context())
		l.ok(err)
		return p.Shards == 6 && p.Phase == shard.Stable
	})
}

// TestAPlacementThatRedisFellBackToIsLearned: a scanner works by the placement that
// a backup brought back, though its epoch is lower than the one that it knew.
func TestAPlacementThatRedisFellBackToIsLearned(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 3")}, nil)
	l.start()
	old, err := l.topic("orders").Placement(t.Context())
	l.ok(err)
	l.write(map[string]string{"orders": declaring("orders", "shards: 5")})
	wait.For(t, "5 shards", func() bool {
		p, _ := l.served("orders").known()
		return p.Shards == 5 && p.Phase == shard.Stable
	})
	prefix := l.cfg.Settings.Redis.Prefix
	for at := range 5 {
		l.ok(l.rdb.Del(t.Context(), fmt.Sprintf("%s:gate:{orders:%d}", prefix, at)).Err())
	}
	l.ok(l.rdb.HSet(t.Context(), prefix+":placement:{orders}", "value", old.String()).Err())
	wait.For(t, "the placement from before", func() bool {
		p, _ := l.served("orders").known()
		return p == old && l.served("orders").scanned() == 3
	})
}
