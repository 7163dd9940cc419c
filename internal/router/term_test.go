package router

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// term begins a term of the intake.
func (c *sandbox) term() *Router {
	c.t.Helper()
	latest, _, err := c.LatestTerm(c.t.Context())
	check.OK(c.t, err)
	r, err := c.Router("orders").BeginTerm(c.t.Context(), latest)
	check.OK(c.t, err)
	return r
}

// schedules stores a task of each shard by a router, and returns the first error.
func (c *sandbox) schedules(r *Router, p shard.Placement) error {
	c.t.Helper()
	for at := range p.Shards {
		e := entry(idIn(p, at), task.In(time.Hour))
		if err := r.Schedule(c.t.Context(), []shard.Entry{e})[0].Err; err != nil {
			return err
		}
	}
	return nil
}

// idIn returns an ID of a shard.
func idIn(p shard.Placement, at int) string {
	id := "x"
	for p.New(id) != at {
		id += "x"
	}
	return id
}

// TestATermFollowsTheShards: its router goes on when M changes, or when a shard has lost the
// term. Once a later term has stored something, the earlier one stores nothing: not in
// shards that both know, nor in those that came later.
func TestATermFollowsTheShards(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	earlier := c.term()
	check.OK(c.t, c.schedules(earlier, c.p))
	check.OK(c.t, c.rdb.HDel(c.t.Context(), c.key("fence", 1), "intake").Err())
	check.OK(c.t, c.schedules(earlier, c.p))
	later := c.term()
	check.OK(c.t, later.Schedule(c.t.Context(), []shard.Entry{entry(idIn(c.p, 0), task.Now())})[0].Err)
	began, err := c.Begin(c.t.Context(), c.p, 5)
	if check.OK(c.t, err); !began {
		t.Fatal("the change didn't begin")
	}
	p, err := c.Placement(c.t.Context())
	check.OK(c.t, err)
	for at := range p.Shards {
		id := idIn(p, at)
		err := earlier.Schedule(c.t.Context(), []shard.Entry{entry(id, task.Now())})[0].Err
		_, moved := earlier.Reschedule(c.t.Context(), id, task.Now())
		cancelled := earlier.CancelMany(c.t.Context(), []string{id}, 100)[0]
		for verb, err := range map[string]error{"schedule": err, "move": moved, "cancel": cancelled} {
			if !errors.Is(err, shard.ErrSuperseded) {
				t.Errorf("%s in shard %d: got %v", verb, at, err)
			}
		}
	}
	check.OK(c.t, c.schedules(later, p))
	check.OK(c.t, c.schedules(c.Router("orders"), p)) // others have no term
}

func TestACallerShowsAShardEachPlacementOfOneEpoch(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	router := c.Router("orders")
	c.begin(3)
	check.OK(c.t, router.show(c.t.Context(), c.p, []int{0})[0])
	other := c.p
	other.Shards = 4
	var moved *shard.MovedError
	if err := router.show(c.t.Context(), other, []int{0})[0]; !errors.As(err, &moved) || moved.Placement != c.p {
		t.Fatalf("got %v", err)
	}
}
