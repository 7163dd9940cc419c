//go:build measure

package shard

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMeasureHistory measures what the setting history costs Redis. The CPU is for a task that
// is stored, claimed and settled in batches of 500. The memory is for its two events.
func TestMeasureHistory(t *testing.T) {
	const tasks, batch = 200_000, 500
	for _, history := range []time.Duration{0, time.Hour, 0, time.Hour} {
		c := sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "duefleet", 1)
		check.OK(c.t, c.KeepEvents(c.t.Context(), c.p, history))
		stat := func(section, field string) float64 {
			n, err := strconv.ParseFloat(registry.ParseInfo(c.rdb.Info(c.t.Context(), section).Val())[field], 64)
			check.OK(c.t, err)
			return n
		}
		cpu := func() float64 { return stat("cpu", "used_cpu_user") + stat("cpu", "used_cpu_sys") }
		c.put(task.Now(), "warm")
		c.settle(leases(c.claim())...)
		busy, memory := cpu(), stat("memory", "used_memory")
		for from := 0; from < tasks; from += batch {
			ids := make([]string, batch)
			for i := range ids {
				ids[i] = fmt.Sprintf("order-%09d", from+i)
			}
			c.put(task.Now(), ids...)
			c.settle(leases(c.claim())...)
		}
		t.Logf("history %v: %.2f us of Redis a task, %.0f bytes a task", history, (cpu()-busy)/tasks*1e6,
			(stat("memory", "used_memory")-memory)/tasks)
	}
}
