package verify

import (
	"context"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/test/check"
)

// TestVerdict: each mistake is an error, and the reason for an early end comes last.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		r       Report
		failure error
	}{
		"": {Report{Marked: 3, Parked: 1, Foreign: 1, Restored: 1, Uncertain: 1, Outages: 1, Max: 1000}, nil},
		"verify orders: 1 lost; 2 early; 3 repeated without a mark": {
			Report{Lost: 1, Early: 2, Unmarked: 3}, nil},
		"verify orders: the latest came 1000.1 ms after it was due, more than --max-late": {Report{Max: 1000.1}, nil},
		"verify orders: no task could be scheduled":                                       {Report{Scheduled: -1}, nil},
		"verify orders: context canceled":                                                 {Report{}, context.Canceled},
		"verify orders: 1 early; queue q remains: context canceled": {Report{Early: 1, Cleanup: "queue q remains"},
			context.Canceled},
	} {
		c.r.Topic = "orders"
		c.r.Scheduled++
		got := ""
		if err := c.r.verdict(c.failure, time.Second); err != nil {
			got = err.Error()
		}
		check.Equal(t, "verdict", got, want)
	}
}

// TestText: the report for people shows each kind of mistake, and leaves out what didn't happen.
func TestText(t *testing.T) {
	t.Parallel()
	r := Report{Scheduled: 100, Delivered: 98, Rate: 20, Seconds: 7.25, Lost: 1, Parked: 1, Early: 1, ClockError: 1.5,
		LostTasks: []LostTask{{ID: "verify-x-7", State: "parked", Reason: "no route",
			Events: []string{"scheduled", "parked"}}},
		EarlyTasks: []string{"verify-x-9 by 3ms"}, Marked: 2, Unmarked: 1, UnmarkedTasks: []string{"verify-x-8"},
		P50: 1, P99: 2, Max: 3, Histogram: buckets(balance.Lateness{1: 98})}
	check.Equal(t, "the report", r.Text(), `scheduled  100, 20/s; the run took 7.2 s
delivered  98
lost       1
           verify-x-7: parked, no route; history: scheduled, parked
parked     1
early      1 (Redis's clock is known to 1.500 ms)
           verify-x-9 by 3ms
repeated   2 marked, 1 unmarked
           verify-x-8
lateness   p50 1.0 ms, p99 2.0 ms, max 3.0 ms
       0.5 ms        98 ####################################`)
	r = Report{Interrupted: true, Cancelled: 4, Outstanding: 5, Restored: 1, Uncertain: 2, Foreign: 3, Outages: 1,
		OutageSeconds: 1.5, Reconnects: 1, Away: true}
	check.Equal(t, "an early end", r.Text(), `interrupted; until then:
scheduled  0, 0/s; the run took 0.0 s
delivered  0
cancelled  4 of 5 outstanding
parked     0
early      0 (Redis's clock is known to 0.000 ms)
repeated   0 marked, 0 unmarked
           1 repeats of tasks that were stored twice: the first call had no answer
           2 tasks may not be stored: no call had an answer
           3 messages of others arrived
outages    1 of scheduling, 1.5 s together
rabbitmq   1 lost connections
           it is away, so tasks that aren't stored may wait in the queue
lateness   p50 0.0 ms, p99 0.0 ms, max 0.0 ms`)
}
