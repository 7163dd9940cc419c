package scanner

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// slowSource is a source whose answers wait while its lock is held.
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

func TestAShardCountThatIsAppliedWhileTheLastOneIsReadIsReconciled(t *testing.T) {
	t.Parallel()
	slow := &slowSource{}
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4")}, func(s config.Source) config.Source {
		slow.Source = s
		return slow
	})
	_, err := l.topic("orders").Ensure(t.Context(), 3)
	check.OK(l.t, err)
	slow.held.Lock()
	l.start()
	check.Until(t, "4 shards to be read", func() bool { return slow.reads.Load() == 1 })
	l.write(map[string]string{"orders": declaring("orders", "shards: 6")})
	check.Until(t, "6 shards to be applied", func() bool {
		return l.served("orders").topic.inForce.Settings().Shards == 6
	})
	slow.held.Unlock()
	check.Until(t, "6 shards", func() bool {
		p, err := l.topic("orders").Placement(t.Context())
		check.OK(l.t, err)
		return p.Shards == 6 && p.Phase == shard.Stable
	})
}

// TestTasksInShardsThatNobodyPollsAreRecovered: Redis lost the placement of 8 shards,
// and the shards forgot that they had seen it.
func TestTasksInShardsThatNobodyPollsAreRecovered(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 2")}, nil)
	client, err := producer.New(producer.Config{Redis: l.rdb, Prefix: l.cfg.Settings.Redis.Prefix})
	check.OK(l.t, err)
	_, err = l.topic("orders").Ensure(t.Context(), 8)
	check.OK(l.t, err)
	const tasks = 60
	for i := range tasks {
		_, err := client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: strconv.Itoa(i),
			When: producer.In(time.Hour)})
		check.OK(l.t, err)
	}
	prefix := l.cfg.Settings.Redis.Prefix
	for at := range 8 {
		check.OK(l.t, l.rdb.Del(t.Context(), fmt.Sprintf("%s:fence:{orders:%d}", prefix, at)).Err())
	}
	check.OK(l.t, l.rdb.HSet(t.Context(), prefix+":placement:{orders}", "value", "1 2 2 stable").Err())
	status := func() admin.TopicStatus {
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		check.OK(l.t, err)
		return s.Topics[0]
	}
	if s := status(); s.Orphans == 0 || s.Orphans+s.Pending != tasks || len(s.Notes) == 0 {
		t.Errorf("status shows %d orphaned tasks and %d pending tasks of %d, and notes %q", s.Orphans, s.Pending, tasks,
			s.Notes)
	}
	l.start()
	check.Until(t, "every task to be where its ID belongs", func() bool {
		s := status()
		return s.Phase == shard.Stable && s.Shards == 2 && s.Orphans == 0 && s.Pending == tasks
	})
	for i := range tasks {
		check.OK(l.t, client.Cancel(t.Context(), "orders", strconv.Itoa(i)))
	}
}

// TestAPlacementThatRedisLosesIsPutBack: the shards have seen what Redis lost. No other
// client calls Redis and finds out.
func TestAPlacementThatRedisLosesIsPutBack(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 3")}, nil)
	l.start()
	key := l.cfg.Settings.Redis.Prefix + ":placement:{orders}"
	old, err := l.rdb.HGetAll(t.Context(), key).Result()
	check.OK(l.t, err)
	l.write(map[string]string{"orders": declaring("orders", "shards: 5")})
	var ahead shard.Placement
	check.Until(t, "5 shards", func() bool {
		ahead, _ = l.served("orders").topic.resharder.Known()
		return ahead.Shards == 5 && ahead.Phase == shard.Stable
	})
	check.OK(l.t, l.rdb.Del(t.Context(), key).Err())
	check.OK(l.t, l.rdb.HSet(t.Context(), key, old).Err())
	check.Until(t, "the placement that the shards have seen", func() bool {
		p, err := l.topic("orders").Placement(t.Context())
		check.OK(l.t, err)
		known, _ := l.served("orders").topic.resharder.Known()
		return p == ahead && known == ahead
	})
}

// TestAPlacementThatRedisFellBackToIsLearned: a scanner works with the placement from a
// backup, although its epoch is lower than the known one.
func TestAPlacementThatRedisFellBackToIsLearned(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 3")}, nil)
	l.start()
	old, err := l.topic("orders").Placement(t.Context())
	check.OK(l.t, err)
	l.write(map[string]string{"orders": declaring("orders", "shards: 5")})
	prefix := l.cfg.Settings.Redis.Prefix
	check.Until(t, "5 shards, each of which has been shown that by this scanner and won't be again", func() bool {
		p, _ := l.served("orders").topic.resharder.Known()
		for at := range 5 {
			shown := l.rdb.HGet(t.Context(), fmt.Sprintf("%s:fence:{orders:%d}", prefix, at), "shown").Val()
			if p.Shards != 5 || p.Phase != shard.Stable || shown != p.String() {
				return false
			}
		}
		return true
	})
	reads := faults.Count(l.rdb)
	for n := range 2 { // the reconciler has seen that they are as many as the document says
		l.served("orders").topic.inForce.Changed.Fire()
		check.Until(t, "another reading of the placement", func() bool { return reads.Of("hget") > n })
	}
	for at := range 5 {
		check.OK(l.t, l.rdb.Del(t.Context(), fmt.Sprintf("%s:fence:{orders:%d}", prefix, at)).Err())
	}
	check.OK(l.t, l.rdb.HSet(t.Context(), prefix+":placement:{orders}", "value", old.String()).Err())
	check.Until(t, "the placement from before", func() bool {
		p, _ := l.served("orders").topic.resharder.Known()
		return p == old && l.served("orders").topic.scanned() == 3
	})
}

// TestAnotherPlacementOfTheSameEpochIsTheReconcilersToTake: a poller that reads one keeps
// the known placement, because it can't tell which came first. The reconciler knows when
// it looked, and takes it.
func TestAnotherPlacementOfTheSameEpochIsTheReconcilersToTake(t *testing.T) {
	t.Parallel()
	slow := &slowSource{}
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 3", "tick: 10ms")},
		func(s config.Source) config.Source {
			slow.Source = s
			return slow
		})
	l.start()
	orders := l.served("orders").topic
	check.Until(t, "the reconciler to have looked", func() bool { return slow.reads.Load() > 0 })
	known, _ := orders.resharder.Known()
	slow.held.Lock()
	before := slow.reads.Load()
	l.write(map[string]string{"orders": declaring("orders", "shards: 4", "tick: 10ms")})
	check.Until(t, "the reconciler to be held up", func() bool { return slow.reads.Load() > before })
	other := known
	other.Shards, other.Previous = 5, 5
	key := l.cfg.Settings.Redis.Prefix + ":placement:{orders}"
	check.OK(l.t, l.rdb.HSet(t.Context(), key, "value", other.String()).Err())
	ticks := l.value("duefleet_ticks_total") + 2
	check.Until(t, "the poller to read it", func() bool { return l.value("duefleet_ticks_total") >= ticks })
	if p, _ := orders.resharder.Known(); p != known {
		t.Errorf("the poller took %v, and knew %v", p, known)
	}
	l.write(map[string]string{"orders": declaring("orders", "shards: 5", "tick: 10ms")})
	check.Until(t, "5 shards to be applied", func() bool { return orders.inForce.Settings().Shards == 5 })
	slow.held.Unlock()
	check.Until(t, "the reconciler to take it", func() bool { p, _ := orders.resharder.Known(); return p == other })
}

// registered announces nothing. A scanner that has it assumes that all scanners have the
// same documents, as with Consul.
type registered struct{}

func (registered) Register(context.Context, string, string) error    { return nil }
func (registered) Deregister(context.Context, string) error          { return nil }
func (registered) WriteStatus(context.Context, string, []byte) error { return nil }
func (registered) DeleteStatus(context.Context, string) error        { return nil }
func (registered) SweepStatus(context.Context, func(string, []byte) bool) ([]string, error) {
	return nil, nil
}

func (registered) Identity(context.Context, string) (string, uint64, error) { return "", 0, nil }

func (registered) SaveIdentity(context.Context, string, string, uint64) (bool, error) {
	return true, nil
}

// TestAPlacementThatNobodyMadeIsUndone: a producer invented a placement and showed it to
// a shard. A scanner that starts puts it in force. With Consul the document's shard count
// comes back by itself, with files when the file says another one.
func TestAPlacementThatNobodyMadeIsUndone(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"Consul": true, "files": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 2", "tick: 50ms")}, nil)
			if shared {
				l.cfg.Register = registered{}
			}
			_, err := l.topic("orders").Ensure(t.Context(), 2)
			check.OK(l.t, err)
			client, err := producer.New(producer.Config{Redis: l.rdb, Prefix: l.cfg.Settings.Redis.Prefix})
			check.OK(l.t, err)
			for i := range 20 {
				_, err := client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: strconv.Itoa(i),
					When: producer.In(time.Hour)})
				check.OK(l.t, err)
			}
			invented := shard.Placement{Epoch: 1000, Shards: 16, Previous: 16, Phase: shard.Stable}
			_, err = l.topic("orders").Shard(0).Fence(t.Context(), invented)
			check.OK(l.t, err)
			l.start()
			reached := func(shards int) func() bool {
				return func() bool {
					p, err := l.topic("orders").Placement(t.Context())
					check.OK(l.t, err)
					return p.Epoch >= invented.Epoch && p.Shards == shards && p.Phase == shard.Stable
				}
			}
			want := 2
			if !shared {
				check.Until(t, "the invented placement to be in force", reached(invented.Shards))
				want = 3
				l.write(map[string]string{"orders": declaring("orders", "shards: 3", "tick: 50ms")})
			}
			check.Until(t, "the document's shard count", reached(want))
			for i := range 20 {
				check.OK(l.t, client.Cancel(t.Context(), "orders", strconv.Itoa(i)))
			}
		})
	}
}
