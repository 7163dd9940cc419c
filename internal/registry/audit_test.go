package registry_test

import (
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/test/check"
)

// auditID returns the ID of an entry.
func auditID(n int) string { return fmt.Sprintf("entry-%06d", n) }

// TestAnAuditEntryIsBegunAndEnded: by Redis's clock, each call executed twice.
func TestAnAuditEntryIsBegunAndEnded(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	before := c.now()
	check.OK(c.t, c.BeginAudit(c.t.Context(), auditID(1), "started"))
	check.OK(c.t, c.BeginAudit(c.t.Context(), auditID(1), "again"))
	all, err := c.Audit(c.t.Context())
	check.OK(c.t, err)
	if len(all) != 1 || all[0].Note != "started" || all[0].Began.UnixMilli() < before || !all[0].Ended.IsZero() {
		t.Fatalf("begun: %+v", all)
	}
	began := all[0].Began
	for range 2 {
		check.OK(c.t, c.EndAudit(c.t.Context(), auditID(1), "done, with blanks"))
	}
	all, err = c.Audit(c.t.Context())
	check.OK(c.t, err)
	if len(all) != 1 || all[0].Note != "done, with blanks" || !all[0].Began.Equal(began) || all[0].Ended.Before(began) {
		t.Fatalf("ended: %+v", all)
	}
	check.OK(c.t, c.EndAudit(c.t.Context(), auditID(2), "displaced"))
	all, err = c.Audit(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "entries", len(all), 1)
}

// TestTheAuditHoldsTheNewestEntries: a new entry displaces the oldest one, and no other.
func TestTheAuditHoldsTheNewestEntries(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	now := c.now()
	for i := range registry.MostAudited {
		text := fmt.Sprintf("%d 0 {}", now-1000*int64(registry.MostAudited-i))
		check.OK(c.t, c.rdb.HSet(c.t.Context(), c.key("audit"), auditID(i), text).Err())
	}
	for i := range 3 {
		check.OK(c.t, c.BeginAudit(c.t.Context(), auditID(registry.MostAudited+i), "new"))
	}
	all, err := c.Audit(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "entries", len(all), registry.MostAudited)
	check.Equal(t, "oldest", all[len(all)-1].ID, auditID(3))
	check.Equal(t, "a new one", all[2].Note, "new")
	for i := 1; i < len(all); i++ {
		if all[i].Began.After(all[i-1].Began) {
			t.Fatalf("entry %d began after the one before it", i)
		}
	}
}
