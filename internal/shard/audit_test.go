package shard

import (
	"fmt"
	"testing"
)

// auditID returns the ID of an entry.
func auditID(n int) string { return fmt.Sprintf("entry-%06d", n) }

// TestAnAuditEntryIsBegunAndEnded: by Redis's clock, each call executed twice.
func TestAnAuditEntryIsBegunAndEnded(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	before := c.now()
	c.ok(c.store.BeginAudit(c.ctx(), auditID(1), "started"))
	c.ok(c.store.BeginAudit(c.ctx(), auditID(1), "again"))
	all, err := c.store.Audit(c.ctx())
	c.ok(err)
	if len(all) != 1 || all[0].Note != "started" || all[0].Began.UnixMilli() < before || !all[0].Ended.IsZero() {
		t.Fatalf("begun: %+v", all)
	}
	began := all[0].Began
	for range 2 {
		c.ok(c.store.EndAudit(c.ctx(), auditID(1), "done, with blanks"))
	}
	all, err = c.store.Audit(c.ctx())
	c.ok(err)
	if len(all) != 1 || all[0].Note != "done, with blanks" || !all[0].Began.Equal(began) || all[0].Ended.Before(began) {
		t.Fatalf("ended: %+v", all)
	}
	c.ok(c.store.EndAudit(c.ctx(), auditID(2), "displaced"))
	all, err = c.store.Audit(c.ctx())
	c.ok(err)
	equal(t, "entries", len(all), 1)
}

// TestTheAuditHoldsTheNewestEntries: a new entry displaces the oldest one, and no other.
func TestTheAuditHoldsTheNewestEntries(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	now := c.now()
	for i := range MostAudited {
		text := fmt.Sprintf("%d 0 {}", now-1000*int64(MostAudited-i))
		c.ok(c.rdb.HSet(c.ctx(), c.store.auditKey(), auditID(i), text).Err())
	}
	for i := range 3 {
		c.ok(c.store.BeginAudit(c.ctx(), auditID(MostAudited+i), "new"))
	}
	all, err := c.store.Audit(c.ctx())
	c.ok(err)
	equal(t, "entries", len(all), MostAudited)
	equal(t, "oldest", all[len(all)-1].ID, auditID(3))
	equal(t, "a new one", all[2].Note, "new")
	for i := 1; i < len(all); i++ {
		if all[i].Began.After(all[i-1].Began) {
			t.Fatalf("entry %d began after the one before it", i)
		}
	}
}
