package scanner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/ratelog"
)

const (
	// unreadablePause is how long a claim sets a record of a newer format aside.
	unreadablePause = time.Minute
	// unreadableGrace is how much later such a task may be met again before it counts as
	// gone.
	unreadableGrace = 5 * time.Second
	// unreadableShards is the most shards that a heartbeat names.
	unreadableShards = 64
)

// unreadable counts the tasks that claims skipped because no script of this version reads
// their records. A claim sets such tasks aside for a minute. So the number in a shard is
// the number that all members met there in the last minute. A task without a record is
// parked, and counts for that minute too. It is safe for concurrent use.
type unreadable struct {
	notice *ratelog.Logger
	now    func() time.Time

	mu    sync.Mutex
	met   map[int][]sighting // by shard, the oldest first
	since map[int]time.Time  // by shard: the first of the sightings that follow each other
}

// sighting is a claim that skipped tasks.
type sighting struct {
	at    time.Time
	tasks int
}

func newUnreadable(n *ratelog.Logger) *unreadable {
	return &unreadable{notice: n, now: time.Now, met: map[int][]sighting{}, since: map[int]time.Time{}}
}

// add logs and counts the tasks that a claim skipped in a shard. It replaces sightings
// that are at least unreadablePause old: their tasks are met again now.
func (u *unreadable) add(ctx context.Context, at, tasks int) {
	u.notice.Log(ctx, "shard", at, "tasks", tasks)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if _, there := u.since[at]; !there {
		u.since[at] = now
	}
	u.met[at] = append(after(u.met[at], now.Add(-unreadablePause)), sighting{now, tasks})
}

// tasks returns how many such tasks there are, by this member's last sightings.
func (u *unreadable) tasks() (n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := u.now().Add(-unreadablePause - unreadableGrace)
	for at, all := range u.met {
		all = after(all, gone)
		if u.met[at] = all; len(all) == 0 {
			delete(u.met, at)
			delete(u.since, at)
		}
		for _, s := range all {
			n += int64(s.tasks)
		}
	}
	return n
}

// addToNote reports how many such tasks there are, in which shards, and since when.
func (u *unreadable) addToNote(n *balance.TopicNote) {
	if n.Unreadable = u.tasks(); n.Unreadable == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n.UnreadableSince = map[int]time.Time{}
	for _, at := range slices.Sorted(maps.Keys(u.since)) {
		if len(n.UnreadableSince) < unreadableShards {
			n.UnreadableSince[at] = u.since[at]
		}
	}
}

// after returns the sightings later than at.
func after(all []sighting, at time.Time) []sighting {
	return slices.DeleteFunc(all, func(s sighting) bool { return !s.at.After(at) })
}
