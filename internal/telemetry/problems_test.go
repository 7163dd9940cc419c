package telemetry

import (
	"maps"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// TestProblemsAreSeriesWhileTheyLast: one for each kind and topic. A problem that is over
// leaves none.
func TestProblemsAreSeriesWhileTheyLast(t *testing.T) {
	t.Parallel()
	reg := NewRegistry()
	third := problem.New(problem.ShardUnserved, "orders", "shard 3")
	third.Shard = "3"
	found := []problem.Problem{
		problem.New(problem.ShardUnserved, "orders", "shard 2"), third,
		problem.New(problem.IntakeStopped, "mails", "no queue"), problem.New(problem.RedisUnreachable, "", "refused"),
	}
	check.OK(t, AddProblems(reg, func() []problem.Problem { return found }))
	wantValues(t, reg, map[string]float64{
		`problem{kind=shard_unserved,topic=orders}`: 1,
		`problem{kind=intake_stopped,topic=mails}`:  1,
		`problem{kind=redis_unreachable,topic=}`:    1,
	})
	found = nil
	for series := range maps.Keys(values(gather(t, reg))) {
		if series[:7] == "problem" {
			t.Errorf("%s is there, and the problem is over", series)
		}
	}
	if AddProblems(reg, func() []problem.Problem { return nil }) == nil {
		t.Error("added twice")
	}
}
