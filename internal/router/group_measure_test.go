//go:build measure

package router

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMeasureGroups compares a task in a group with one in no group, by the memory of Redis,
// and its CPU to schedule and to cancel.
func TestMeasureGroups(t *testing.T) {
	const tasks, batch = 200_000, 500
	for _, group := range []string{"", "customer-%07d"} {
		server := servertest.OwnRedis(t)
		c := sandboxOf(t, fixture.At(t, server.Addr(), "duefleet"), 16)
		r := c.Router("orders")
		ids := make([]string, tasks)
		used := func(section, field string) float64 {
			info, err := c.rdb.InfoMap(context.Background(), section).Result()
			check.OK(c.t, err)
			var v float64
			for _, fields := range info {
				if text, there := fields[field]; there {
					_, err := fmt.Sscan(text, &v)
					check.OK(c.t, err)
				}
			}
			return v
		}
		memory, cpu := used("memory", "used_memory"), used("cpu", "used_cpu_user")+used("cpu", "used_cpu_sys")
		spent := func() float64 {
			now := used("cpu", "used_cpu_user") + used("cpu", "used_cpu_sys")
			d := now - cpu
			cpu = now
			return d * 1e6 / tasks
		}
		for from := 0; from < tasks; from += batch {
			var entries []shard.Entry
			for i := from; i < from+batch; i++ {
				ids[i] = fmt.Sprintf("reminder-%09d", i)
				in := &task.Task{Payload: make([]byte, 100)}
				if group != "" {
					in.Group = fmt.Sprintf(group, i/5)
				}
				body, err := shard.Encode(in)
				check.OK(c.t, err)
				entries = append(entries, shard.Entry{ID: ids[i], When: task.In(time.Hour), Body: body})
			}
			for _, s := range r.Schedule(c.t.Context(), entries) {
				check.OK(c.t, s.Err)
			}
		}
		t.Logf("group %q: %.0f bytes a task, schedule %.2f µs", group, (used("memory", "used_memory")-memory)/tasks, spent())
		spent()
		for from := 0; from < tasks; from += batch {
			for _, err := range r.CancelMany(c.t.Context(), ids[from:from+batch], 1000) {
				check.OK(c.t, err)
			}
		}
		t.Logf("group %q: cancel %.2f µs", group, spent())
	}
}
