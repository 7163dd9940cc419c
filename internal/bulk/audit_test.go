package bulk

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// audit returns the entries of topic orders.
func (s *stock) audit() []Entry {
	s.t.Helper()
	entries, err := Audit(s.t.Context(), s.Store, fixture.Orders)
	check.OK(s.t, err)
	return entries
}

// TestACommandIsAuditedBeforeAndAfter: its entry is there before anything changes, and has
// the counts after it. One that fails or is interrupted has its error too.
func TestACommandIsAuditedBeforeAndAfter(t *testing.T) {
	t.Parallel()
	s := newStock(t, 1)
	e := Entry{By: "ann", Host: "h", Command: "tasks move --in 1h", Topic: fixture.Orders, Filter: "all"}
	n, err := Audited(t.Context(), s.Store, e, func() (Counts, error) {
		all := s.audit()
		if len(all) != 1 || all[0].State != Started || all[0].By != "ann" || all[0].Began.IsZero() ||
			!all[0].Ended.IsZero() || all[0].Counts != nil {
			t.Errorf("while it runs: %+v", all)
		}
		return Counts{Matched: 2, Changed: 2}, nil
	})
	check.OK(t, err)
	check.Equal(t, "counts", n, Counts{Matched: 2, Changed: 2})
	one := s.audit()[0]
	if one.State != Done || *one.Counts != n || one.Ended.Before(one.Began) || one.Command != e.Command ||
		one.Filter != "all" || one.Host != "h" {
		t.Errorf("done: %+v", one)
	}
	ctx, stop := context.WithCancel(t.Context())
	e.Filter = strings.Repeat("ä", 5000)
	_, err = Audited(ctx, s.Store, e, func() (Counts, error) {
		stop()
		return Counts{Matched: 1, Failed: 1}, errors.New("cut off")
	})
	check.Equal(t, "error", err.Error(), "cut off")
	for _, one := range s.audit() {
		if one.Counts.Failed == 1 && (one.State != Failed || one.Error != "cut off" || len(one.Filter) > 1100) {
			t.Errorf("failed: %+v", one)
		}
	}
	other, err := Audit(t.Context(), s.Store, "other")
	check.OK(t, err)
	check.Equal(t, "entries of another topic", len(other), 0)
}

// TestACommandStopsIfItCannotBeAudited: nothing changes with the rights of before.
func TestACommandStopsIfItCannotBeAudited(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	s := stockIn(t, fixture.At(t, server.Addr(), "duefleet"), 1)
	s.put(task.In(time.Hour), "a")
	check.OK(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "old", "on", ">old", "~duefleet:due:*", "~duefleet:task:*",
		"+@all").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "old", Password: "old"})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	never := func() (Counts, error) {
		t.Error("it went on")
		return Counts{}, nil
	}
	_, err = Audited(t.Context(), store, Entry{Command: "tasks cancel"}, never)
	if !shard.Denied(err) || !strings.Contains(err.Error(), "nothing was changed") ||
		!strings.Contains(err.Error(), "deploy/redis/operator.acl") {
		t.Errorf("without the right: %v", err)
	}
	check.OK(t, server.Kill())
	_, err = Audited(t.Context(), s.Store, Entry{Command: "tasks cancel"}, never)
	if !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("Redis is away: %v", err)
	}
}
