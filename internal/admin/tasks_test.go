package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// list returns the listed tasks as "ID state".
func list(t *testing.T, tasks Tasks) []string {
	t.Helper()
	var got []string
	check.OK(t, tasks.Each(t.Context(), func(l Listed) bool {
		got = append(got, fmt.Sprint(l.ID, " ", l.State))
		return true
	}))
	return got
}

// TestTasksAreListedByStateDueAndPrefix: with a limit, tasks of several shards come in the
// order of their next attempt.
func TestTasksAreListedByStateDueAndPrefix(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	now := time.Now().Add(time.Hour).Truncate(time.Second)
	at := func(id string, seconds int) shard.Entry {
		return shard.Entry{ID: id, When: task.At(now.Add(time.Duration(seconds) * time.Second)), Body: []byte{0}}
	}
	p, err := a.topic.Placement(t.Context())
	check.OK(t, err)
	fixture.Store(t, a.topic, at("w-3", 3), at("w-1", 1), at("w-2", 2), at("w-4", 4))
	fixture.Store(t, a.topic, shard.Entry{ID: "r", When: task.Now(), Body: []byte{0}})
	claim := func(id string) shard.Lease {
		t.Helper()
		b, err := a.topic.Shard(p.New(id)).Claim(t.Context(), shard.Claim{Claimant: "w", Request: id, Limit: 1,
			Lease: 2 * time.Hour})
		if err != nil || len(b.Tasks) != 1 || b.Tasks[0].ID != id {
			t.Fatalf("claimed %+v, %v", b.Tasks, err)
		}
		return shard.Lease{ID: id, Token: b.Tasks[0].Token}
	}
	back := shard.Release{Lease: claim("r"), Attempted: true, Delay: time.Hour + 150*time.Second, Reason: "no queue"}
	if n, err := a.topic.Shard(p.New("r")).Release(t.Context(), []shard.Release{back}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	fixture.Store(t, a.topic, shard.Entry{ID: "l", When: task.Now(), Body: []byte{0}})
	claim("l")
	fixture.Store(t, a.topic, shard.Entry{ID: "p", When: task.Now(), Body: []byte{0}})
	a.park(p.New("p"), "p")
	all := "l leased, p parked, r retrying, w-1 waiting, w-2 waiting, w-3 waiting, w-4 waiting"
	for name, c := range map[string]struct {
		tasks Tasks
		want  string
	}{
		"all":      {Tasks{}, all},
		"waiting":  {Tasks{State: task.Waiting}, "w-1 waiting, w-2 waiting, w-3 waiting, w-4 waiting"},
		"retrying": {Tasks{State: Retrying}, "r retrying"},
		"leased":   {Tasks{State: task.Leased}, "l leased"},
		"parked":   {Tasks{State: task.Parked}, "p parked"},
		"prefix":   {Tasks{Prefix: "w-1"}, "w-1 waiting"},
		"due": {Tasks{DueAfter: now.Add(2 * time.Second), DueBefore: now.Add(3 * time.Second)},
			"w-2 waiting, w-3 waiting"},
		"waiting, due": {Tasks{State: task.Waiting, DueBefore: now.Add(time.Second)}, "w-1 waiting"},
		"retried, due": {Tasks{State: Retrying, DueBefore: now}, "r retrying"},
		"not retried":  {Tasks{State: Retrying, DueAfter: now}, ""},
		"overdue":      {Tasks{DueBefore: now}, "l leased, p parked, r retrying"},
	} {
		c.tasks.Topic = a.topic
		got := list(t, c.tasks)
		if slices.Sort(got); strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %q, want %s", name, got, c.want)
		}
	}
	inOrder := []string{"w-1 waiting", "w-2 waiting", "w-3 waiting", "w-4 waiting", "r retrying", "l leased", "p parked"}
	for n := 1; n < 10; n++ {
		if got, want := list(t, Tasks{Topic: a.topic, Limit: n}), inOrder[:min(n, len(inOrder))]; !slices.Equal(got, want) {
			t.Errorf("the first %d: got %q, want %q", n, got, want)
		}
	}
	if err := (Tasks{Topic: a.topic}).Each(t.Context(), func(Listed) bool { return false }); err != nil {
		t.Errorf("a list that is ended: %v", err)
	}
}

// TestTasksAreListedOnceWhileTheyMove: a waiting or parked task is listed once, no matter
// before which request it moves. The change of the shard count may begin or end meanwhile.
func TestTasksAreListedOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]int{{2, 5}, {5, 2}} {
		for name, parked := range map[string]bool{"waiting": false, "parked": true} {
			t.Run(fmt.Sprintf("%s, %d to %d shards", name, change[0], change[1]), func(t *testing.T) {
				t.Parallel()
				for first, steps := 0, 1; steps > 0; first++ {
					if steps = listAmid(t, first, change[0], change[1], parked); t.Failed() {
						return
					}
				}
			})
		}
	}
}

// listAmid lists a task during a change of the shard count. The change begins before
// request first. The task moves before the next request, and is settled in its old shard
// before the one after. listAmid returns how many of these steps were taken.
func listAmid(t *testing.T, first, from, to int, parked bool) (taken int) {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	topic, _ := ordersAt(t, addr, prefix)
	p, err := topic.Ensure(t.Context(), from)
	check.OK(t, err)
	fixture.Store(t, topic, shard.Entry{ID: moving, When: task.In(time.Hour), Body: []byte{0}})
	if parked {
		a := attic{t: t, prefix: prefix, topic: topic}
		_, a.rdb = ordersAt(t, addr, prefix)
		a.park(p.New(moving), moving)
	}
	var export shard.Exported
	ctx := context.WithoutCancel(t.Context())
	steps := []func() error{
		func() error {
			began, err := topic.Begin(ctx, p, to)
			if err != nil {
				return err
			}
			if p, err = topic.Placement(ctx); err == nil && (!began || !p.Moving(moving)) {
				err = errors.New("nothing moves")
			}
			return err
		},
		func() (err error) {
			if _, err = topic.Shard(p.Old(moving)).Fence(ctx, p); err != nil {
				return err
			}
			export, err = topic.Shard(p.Old(moving)).Export(ctx, p, shard.Export{Claimant: "m", Request: "1", Lease: time.Hour,
				IDs: []string{moving}})
			return err
		},
		func() error {
			return topic.Import(ctx, p, export.Deadline, shard.Share{Shard: p.New(moving), Tasks: export.Tasks})[0].Err
		},
		func() error {
			_, err := topic.Shard(p.Old(moving)).RemoveExported(ctx, []shard.Lease{{ID: moving, Token: export.Token}})
			return err
		},
		func() error {
			done, err := topic.Finish(ctx, p)
			if err == nil && !done {
				err = errors.New("the change is not over")
			}
			return err
		},
	}
	own, rdb := ordersAt(t, addr, prefix)
	var amid *faults.Steps
	amid = faults.NewSteps(rdb, first, func() {
		if taken < len(steps) {
			if err := steps[taken](); err != nil {
				t.Error(err)
			}
			taken++
			amid.Again()
		}
	})
	want := moving + " waiting"
	if parked {
		want = moving + " parked"
	}
	if got := list(t, Tasks{Topic: own}); !slices.Equal(got, []string{want}) {
		t.Errorf("it moved from request %d on, %d steps: listed %q, want %q", first, taken, got, want)
	}
	return taken
}

// TestAListNamesShardsThatCannotBeRead: the tasks of the other shards are listed.
func TestAListNamesShardsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	a.fill(1, 20)
	a.fill(3, 20)
	check.OK(t, a.rdb.Set(t.Context(), a.key("due", 2), "in the way", 0).Err())
	for limit, want := range []int{40, 1} {
		n := 0
		err := Tasks{Topic: a.topic, Limit: limit}.Each(t.Context(), func(Listed) bool { n++; return true })
		if unreadable := shard.Unreadable(err); n != want || len(unreadable) != 1 || unreadable[0].Shard != 2 {
			t.Errorf("listed %d, %v; want %d", n, err, want)
		}
	}
}

// TestADueWindowIsBounded: a window has the task whose next attempt is as late as a backoff can
// be, and the search ends there.
func TestADueWindowIsBounded(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	p := fixture.Placement(t, a.topic)
	fixture.Store(t, a.topic, shard.Entry{ID: "r", When: task.Now(), Body: []byte{0}})
	at := a.topic.Shard(p.New("r"))
	b, err := at.Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: 1, Lease: time.Hour})
	if err != nil || len(b.Tasks) != 1 {
		t.Fatalf("claimed %+v, %v", b.Tasks, err)
	}
	back := shard.Release{Lease: shard.Lease{ID: "r", Token: b.Tasks[0].Token}, Attempted: true, Delay: 24 * time.Hour}
	_, err = at.Release(t.Context(), []shard.Release{back})
	check.OK(t, err)
	read := Tasks{Topic: a.topic, DueBefore: time.Now().Add(time.Hour)}
	check.Equal(t, "listed", strings.Join(list(t, read), ", "), "r retrying")
	page, _, err := Tasks{Topic: a.topic, DueBefore: read.DueBefore, Limit: 10}.Page(t.Context(), TaskCursor{})
	check.OK(t, err)
	check.Equal(t, "on the page", len(page), 1)

	for window, wanted := range map[time.Duration]time.Duration{time.Hour: retryWithin, 48 * time.Hour: 48 * time.Hour} {
		last := Tasks{DueBefore: time.Now().Add(window)}.lastAttempt()
		if off := time.Until(last) - wanted; off.Abs() > time.Minute {
			t.Errorf("a window of %s: read up to %s", window, time.Until(last))
		}
	}
	check.Equal(t, "without a window", Tasks{}.lastAttempt().IsZero(), true)
}
