package scanner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/notice"
)

const (
	// unreadPause is for how long a claim sets a record of a newer format aside.
	unreadPause = time.Minute
	// unreadGrace is how much later such a task may be met again before it is taken for gone.
	unreadGrace = 5 * time.Second
)

// unread counts the tasks that claims left alone since no script of this version reads their
// records. Each claim sets them aside for a minute: a shard holds as many as were met there
// in the last minute, by whichever member. One without a record, which is parked, counts for
// that minute, too. It is safe for concurrent use.
type unread struct {
	notice *notice.Notice
	now    func() time.Time

	mu  sync.Mutex
	met map[int][]sighting // by shard, the oldest first
}

// sighting is a claim that left tasks alone.
type sighting struct {
	at    time.Time
	tasks int
}

func newUnread(n *notice.Notice) *unread {
	return &unread{notice: n, now: time.Now, met: map[int][]sighting{}}
}

// Say logs and counts the tasks that a claim left alone. It takes the attributes of the
// line: "shard" and "tasks" with their numbers.
func (u *unread) Say(ctx context.Context, args ...any) {
	u.notice.Say(ctx, args...)
	if len(args) < 4 {
		return
	}
	at, _ := args[1].(int)
	tasks, _ := args[3].(int)
	u.skipped(at, tasks)
}

// skipped counts tasks that a claim left alone in a shard. What was met there a pause ago or
// before is met again now.
func (u *unread) skipped(at, tasks int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	u.met[at] = append(since(u.met[at], now.Add(-unreadPause)), sighting{now, tasks})
}

// tasks are how many there are, as far as this member met them last.
func (u *unread) tasks() (n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	after := u.now().Add(-unreadPause - unreadGrace)
	for at, all := range u.met {
		all = since(all, after)
		if u.met[at] = all; len(all) == 0 {
			delete(u.met, at)
		}
		for _, s := range all {
			n += int64(s.tasks)
		}
	}
	return n
}

// since leaves out what was met at a time or before.
func since(all []sighting, at time.Time) []sighting {
	return slices.DeleteFunc(all, func(s sighting) bool { return !s.at.After(at) })
}
