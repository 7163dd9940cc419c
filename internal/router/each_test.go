package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// move moves a task from its old shard to its new one.
func (c *sandbox) move(id string) {
	c.t.Helper()
	from := c.Shard(c.p.Old(id))
	export, err := from.Export(c.t.Context(), c.p, shard.Export{Claimant: "m", Request: id, Lease: time.Hour,
		IDs: []string{id}})
	check.OK(c.t, err)
	share := shard.Share{Shard: c.p.New(id), Tasks: export.Tasks}
	for _, imported := range c.Import(c.t.Context(), c.p, export.Deadline, share) {
		check.OK(c.t, imported.Err)
	}
	n, err := from.RemoveExported(c.t.Context(), []shard.Lease{{ID: id, Token: export.Token}})
	check.OK(c.t, err)
	check.Equal(c.t, "settled", n, 1)
}

// TestIDsAreListedOnce lists thousands of IDs in several shards, each once, while the
// shard count changes. Some prefixes have pattern characters.
func TestIDsAreListedOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	const prefix = `a*?[x]^\-`
	const n = 1600
	var entries []shard.Entry
	for i := range n {
		entries = append(entries, entry(fmt.Sprint(prefix, i), task.In(time.Hour)),
			entry(fmt.Sprint("ab-x-", i), task.In(time.Hour)))
	}
	for batch := range slices.Chunk(entries, shard.MaxBatch) {
		for _, r := range c.Router("orders").Schedule(c.t.Context(), batch) {
			check.OK(c.t, r.Err)
		}
	}
	met := map[string]int{}
	listing, begun := c.Listing(shard.Wanted{Prefix: prefix, IDs: true}), false
	for s, err := range listing.All(c.t.Context()) {
		check.OK(c.t, err)
		met[s.ID]++
		if !begun && len(met) == n/2 {
			begun = true
			c.begin(7)
			for at := range 3 {
				_, err := c.Shard(at).Fence(c.t.Context(), c.p)
				check.OK(c.t, err)
			}
			for i := range n {
				if id := fmt.Sprint(prefix, i); c.p.Moving(id) {
					c.move(id)
				}
			}
		}
	}
	if len(met) != n {
		t.Errorf("met %d of %d", len(met), n)
	}
	for id, times := range met {
		if times != 1 || !strings.HasPrefix(id, prefix) {
			t.Fatalf("met %q %d times", id, times)
		}
	}
	unknown := c.Store().Topic("bills").Listing(shard.Wanted{IDs: true})
	if _, err := unknown.Next(c.t.Context()); !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
}
