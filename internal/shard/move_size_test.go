package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// putLarge stores n tasks of the given size in shard 0, and returns their IDs.
func (c *sandbox) putLarge(n, bytes int) (ids []string) {
	c.t.Helper()
	payload := body(strings.Repeat("x", bytes))
	for i := range n {
		id := fmt.Sprintf("large-%03d", i)
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: id, When: task.In(time.Hour), Body: payload}}}).Err)
		ids = append(ids, id)
	}
	return ids
}

func TestAnExportIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, budget, exported int
	}{
		"each larger than the budget": {3 << 20, 0, 1},
		"two fit":                     {400 << 10, 0, 2},
		"all fit":                     {100, 0, 6},
		"a budget of its own":         {400 << 10, 2 << 20, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 2)
			ids := c.putLarge(6, test.size)
			request := Export{Claimant: "m", Request: "a\x00b", Lease: time.Minute, Bytes: test.budget, IDs: ids}
			export, err := c.Shard(0).Export(c.t.Context(), c.p, request)
			check.OK(c.t, err)
			check.Equal(t, "exported", len(export.Tasks), test.exported)
			check.Equal(t, "left", export.Left, len(ids)-test.exported)
			again, err := c.Shard(0).Export(c.t.Context(), c.p, request)
			check.OK(c.t, err)
			check.Equal(t, "exported to the same request", len(again.Tasks), test.exported)
			check.Equal(t, "left, asked again", again.Left, export.Left)
			for _, id := range ids[test.exported:] {
				c.in(id, task.Waiting)
			}
		})
	}
}

// TestWhatAnExportLeavesIsExportedByLaterOnes: what may not be exported stands in front of
// what may, and uses up nothing of the budget.
func TestWhatAnExportLeavesIsExportedByLaterOnes(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	ids := append([]string{"leased", "nothing"}, c.putLarge(5, 700<<10)...)
	for step := range 5 {
		export := c.export(time.Minute, ids...)
		check.Equal(t, "exported", len(export.Tasks), 1)
		check.Equal(t, "left", export.Left, 4-step)
		check.Equal(t, "imported", c.importBatch(export), 1)
		check.Equal(t, "settled", c.settle(exportLeases(export)...), 1)
	}
	export := c.export(time.Minute, ids...)
	check.Equal(t, "exported in the end", len(export.Tasks)+export.Left, 0)
	c.in("leased", task.Leased)
}
