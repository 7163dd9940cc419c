package shard

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestATaskThatWasNeverRetriedPaysNothing for its first due.
func TestATaskThatWasNeverRetriedPaysNothing(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1796119200000).UTC()
	record := "\x10" + big48(due.UnixMilli()) + big48(1) + "ABCDEF" + string(EncodeBody(&task.Task{FirstDue: due}))
	r, err := DecodeRecord("orders", "a", record)
	check.OK(t, err)
	equal(t, "bytes", len(record), recordHead+1)
	equal(t, "first due", r.FirstDue, due)
	equal(t, "mark", NextMark(1796119200000, 1796119200000, 0), "1")
	equal(t, "mark of a retry", NextMark(1796119200000, 1796119200001, 0), "1 1796119200000 1796119200001")
	equal(t, "mark of a later retry", NextMark(1796119200000, 1796119200001, 7), "1 1796119200000 1796119200001 7")
}
