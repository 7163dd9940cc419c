package scanner

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAPauseEndsByItself: the scanner alone ends the pause at its time, by Redis's clock.
// Until then nothing is delivered, and status says until when and why.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	paused := func(until string) map[string]string {
		return map[string]string{"orders": declaring("orders", "shards: 1", "paused: true", "paused_until: '"+until+"'",
			"paused_reason: the shop moves")}
	}
	l := newLone(t, paused("2126-01-01T00:00:00Z"), nil)
	l.start()
	entry := shard.Entry{ID: "o-1", When: task.Now(), Body: []byte{0}}
	r := router.New(l.store).Topic("orders").Schedule(t.Context(), []shard.Entry{entry})[0]
	check.OK(l.t, r.Err)
	status := func() admin.TopicStatus {
		t.Helper()
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		check.OK(l.t, err)
		return s.Topics[0]
	}
	check.Until(t, "status to say until when", func() bool {
		s := status()
		return s.Paused && s.PausedUntil.Equal(time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)) &&
			s.PausedReason == "the shop moves" &&
			fmt.Sprint(s.Notes) == "[paused (the shop moves): nothing is delivered until 2126-01-01T00:00:00Z; 1 tasks are due]"
	})
	now, err := l.store.Now(t.Context())
	check.OK(l.t, err)
	end := time.UnixMilli(now).Add(3 * time.Second)
	l.write(paused(end.UTC().Format(time.RFC3339Nano)))
	check.Until(t, "the task to be delivered", func() bool { return status().Pending == 0 })
	if now, err = l.store.Now(t.Context()); err != nil || time.UnixMilli(now).Before(end) {
		t.Errorf("delivered before %s, at %s, %v", end, time.UnixMilli(now), err)
	}
	check.Until(t, "status to say that it isn't paused", func() bool {
		s := status()
		return !s.Paused && len(s.Notes) == 0
	})
	if lines := l.said.Lines("the topic's pause has ended"); len(lines) != 1 {
		t.Errorf("it logs %q", lines)
	}
	l.write(paused("2126-01-01T00:00:00Z"))
	check.Until(t, "status to say that it is paused again", func() bool { return status().Paused })
}

// TestAPauseInRedis: the scanner stops delivering without a change of the document, and goes
// on when the pause has ended, by itself or not. A scanner that starts doesn't deliver
// before it knows of the pause.
func TestAPauseInRedis(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 1")}, nil)
	orders := l.store.Topic("orders")
	check.OK(l.t, l.store.Registry().Hold(t.Context(), "orders", registry.Hold{Reason: "the shop moves"}))
	l.start()
	scheduled := func(id string) {
		t.Helper()
		entry := shard.Entry{ID: id, When: task.Now(), Body: []byte{0}}
		check.OK(l.t, router.New(l.store).Topic("orders").Schedule(t.Context(), []shard.Entry{entry})[0].Err)
	}
	status := func() admin.TopicStatus {
		t.Helper()
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		check.OK(l.t, err)
		return s.Topics[0]
	}
	check.Until(t, "the topic to be made", func() bool { _, err := orders.Placement(t.Context()); return err == nil })
	scheduled("o-1")
	check.Until(t, "status to say that it is paused", func() bool {
		s := status()
		return s.Paused && s.PausedUntil.IsZero() && s.Pending == 1 && fmt.Sprint(s.Notes) ==
			"[paused (in Redis: the shop moves): nothing is delivered until it is resumed; 1 tasks are due]"
	})
	now, err := l.store.Now(t.Context())
	check.OK(l.t, err)
	end := time.UnixMilli(now).Add(2 * time.Second)
	check.OK(l.t, l.store.Registry().Hold(t.Context(), "orders", registry.Hold{Until: end}))
	check.Until(t, "the task to be delivered", func() bool { return status().Pending == 0 })
	if now, err = l.store.Now(t.Context()); err != nil || time.UnixMilli(now).Before(end) {
		t.Errorf("delivered before %s, at %s, %v", end, time.UnixMilli(now), err)
	}
	check.OK(l.t, l.store.Registry().Hold(t.Context(), "orders", registry.Hold{}))
	check.Until(t, "status to say that it is paused again", func() bool { return status().Paused })
	scheduled("o-2")
	ended, err := l.store.Registry().EndHold(t.Context(), "orders")
	check.OK(l.t, err)
	check.Until(t, "the second task to be delivered", func() bool { s := status(); return !s.Paused && s.Pending == 0 })
	if again, err := l.store.Registry().EndHold(t.Context(), "orders"); err != nil || !ended || again {
		t.Errorf("ended %t, then %t, %v", ended, again, err)
	}
}
