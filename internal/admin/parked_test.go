package admin

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// moving is a task whose shard differs between 2 and 5 shards.
const moving = "order-1"

// TestParkedTasksAreFoundWhileTheyMove: a parked task is replayed, purged and listed, no
// matter before which request it moves.
func TestParkedTasksAreFoundWhileTheyMove(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]int{{2, 5}, {5, 2}} {
		for name, work := range map[string]func(p Parked, ctx context.Context) (int, error){
			"replay":     func(p Parked, ctx context.Context) (int, error) { return p.Replay(ctx, moving) },
			"replay all": func(p Parked, ctx context.Context) (int, error) { return p.Replay(ctx, "") },
			"purge":      func(p Parked, ctx context.Context) (int, error) { return p.Purge(ctx, moving) },
			"list": func(p Parked, ctx context.Context) (n int, err error) {
				err = p.Each(ctx, func(shard.Record) bool { n = 1; return true })
				return n, err
			},
		} {
			t.Run(fmt.Sprintf("%s, %d to %d shards", name, change[0], change[1]), func(t *testing.T) {
				t.Parallel()
				for at := 0; findAmid(t, at, change[0], change[1], work); at++ {
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

// findAmid runs work on the only parked task of a topic. The task moves before request at.
// It reports whether there was such a request.
func findAmid(t *testing.T, at, from, to int, work func(Parked, context.Context) (int, error)) bool {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	topic, _ := ordersAt(t, addr, prefix)
	_, err := topic.Ensure(t.Context(), from)
	check.OK(t, err)
	p, err := topic.Placement(t.Context())
	check.OK(t, err)
	if began, err := topic.Begin(t.Context(), p, to); err != nil || !began {
		t.Fatalf("change begun: %t, %v", began, err)
	}
	p, err = topic.Placement(t.Context())
	check.OK(t, err)
	if !p.Moving(moving) {
		t.Fatal("the task does not move")
	}
	park(t, topic, p, moving)
	own, rdb := ordersAt(t, addr, prefix)
	amid := faults.NewSteps(rdb, at, func() { move(t, topic, p, moving) })
	if n, err := work(Parked{Topic: own}, t.Context()); n != 1 || err != nil {
		t.Errorf("it moved before request %d: %d found, %v", at, n, err)
	}
	return amid.Reached()
}

// park stores a task in its old shard, and parks it.
func park(t *testing.T, topic *shard.Topic, p shard.Placement, id string) {
	t.Helper()
	old := p.Old(id)
	fixture.Put(t, topic, p, old, fixture.Entries(task.Now(), []byte{0}, id)...)
	b, err := topic.Shard(old).Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: 1, Lease: time.Hour})
	if err != nil || len(b.Tasks) != 1 {
		t.Fatalf("%d tasks claimed, %v", len(b.Tasks), err)
	}
	r := shard.Release{Lease: shard.Lease{ID: id, Token: b.Tasks[0].Token}, Park: true, Reason: "no queue"}
	if n, err := topic.Shard(old).Release(t.Context(), []shard.Release{r}); err != nil || n != 1 {
		t.Fatalf("%d tasks parked, %v", n, err)
	}
}

// move moves a task from its old shard to its new one.
func move(t *testing.T, topic *shard.Topic, p shard.Placement, id string) {
	t.Helper()
	export, err := topic.Shard(p.Old(id)).Export(t.Context(), p, shard.Export{Claimant: "m", Request: "1",
		Lease: time.Hour, IDs: []string{id}})
	if err != nil {
		t.Error(err)
		return
	}
	for _, a := range topic.Import(t.Context(), p, export.Deadline, shard.Share{Shard: p.New(id), Tasks: export.Tasks}) {
		if a.Err != nil {
			t.Error(a.Err)
		}
	}
	for _, l := range export.Tasks {
		leases := []shard.Lease{{ID: l.ID, Token: export.Token}}
		if _, err := topic.Shard(p.Old(id)).RemoveExported(t.Context(), leases); err != nil {
			t.Error(err)
		}
	}
}
