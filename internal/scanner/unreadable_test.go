package scanner

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/test/check"
)

// TestTasksOfANewerFormatAreCounted: a scanner that was rolled back sets them aside, a
// minute at a time. Meanwhile status and metrics count them, and status says what to do.
func TestTasksOfANewerFormatAreCounted(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 1")}, nil)
	l.start()
	check.Until(t, "the topic", func() bool {
		known, err := l.store.Registry().Topics(t.Context())
		return err == nil && len(known) == 1 && l.status().Epoch > 0
	})
	at := l.topic("orders").Shard(0)
	now, err := l.topic("orders").Now(t.Context())
	check.OK(l.t, err)
	key := func(kind string) string { return strings.Replace(at.Wake(), ":wake:", ":"+kind+":", 1) }
	for i := range 3 {
		id := fmt.Sprint("new-", i)
		check.OK(l.t, l.rdb.HSet(t.Context(), key("task"), id, "P, a format of the future").Err()) // its first byte is 5 x 16
		check.OK(l.t, l.rdb.ZAdd(t.Context(), key("due"), redis.Z{Member: id, Score: float64(now)}).Err())
	}
	var s admin.TopicStatus
	check.Until(t, "status to count them", func() bool { s = l.status(); return s.UnreadableTasks == 3 })
	if notes := fmt.Sprint(s.Notes); !strings.Contains(notes, "3 tasks") ||
		!strings.Contains(notes, "upgrade the scanners again") {
		t.Errorf("notes: %s", notes)
	}
	if s.Oldest.IsZero() || s.Oldest.After(time.Now()) || s.PerShard[0].Oldest.After(time.Now()) {
		t.Errorf("the oldest is due at %s, of the shard at %s: in the future", s.Oldest, s.PerShard[0].Oldest)
	}
	check.Until(t, "the metric", func() bool { return l.value("duefleet_unreadable_tasks") == 3 })
}

// TestAnUnreadableTaskCountsOnce: although a scanner meets it once a minute, until it is
// gone.
func TestAnUnreadableTaskCountsOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	u := newUnreadable(ratelog.New(slog.New(slog.DiscardHandler), slog.LevelError, "left alone"))
	u.now = func() time.Time { return now }
	is := func(want int64) {
		t.Helper()
		if got := u.tasks(); got != want {
			t.Errorf("%s: %d tasks, want %d", now, got, want)
		}
	}
	is(0)
	u.add(t.Context(), 1, 300)
	u.add(t.Context(), 2, 12)
	is(312)
	first := now
	now = now.Add(10 * time.Second)
	u.add(t.Context(), 1, 8)
	is(320)
	now = now.Add(50*time.Second + 100*time.Millisecond)
	u.add(t.Context(), 1, 300)
	is(320)
	u.add(t.Context(), 2, 12)
	is(320)
	now = now.Add(30 * time.Second) // 8 tasks of shard 1 are gone
	is(312)
	var n balance.TopicNote
	if u.addToNote(&n); n.Unreadable != 312 || !n.UnreadableSince[1].Equal(first) || !n.UnreadableSince[2].Equal(first) {
		t.Errorf("noted %+v", n)
	}
	now = now.Add(time.Minute)
	is(0)
	n = balance.TopicNote{}
	if u.addToNote(&n); !n.IsZero() {
		t.Errorf("noted %+v", n)
	}
}
