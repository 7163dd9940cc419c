package producer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// scheduled stores n tasks that are due in an hour, and returns their IDs.
func (f *fleet) scheduled(c *Client, n int, idOf func(i int) string) (ids []string) {
	f.t.Helper()
	requests := make([]Request, n)
	for i := range requests {
		requests[i] = request(idOf(i), In(time.Hour))
		ids = append(ids, requests[i].ID)
	}
	for _, r := range c.ScheduleMany(f.t.Context(), requests) {
		check.OK(f.t, r.Err)
	}
	return ids
}

// TestCancelManyHasAnErrorForEachTask, in the order of the IDs, and cancels tasks in any
// state. A consumer that has one can't restore it.
func TestCancelManyHasAnErrorForEachTask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), request("leased", Now()))
	check.OK(f.t, err)
	claimed := f.claimAll()
	check.Equal(t, "claimed", len(claimed), 1)
	due := claimed[0].Due.UnixMilli()
	check.Until(t, "a cancel to be later than the due time", func() bool { return f.now() > due })
	f.scheduled(c, 3, func(i int) string { return fmt.Sprint("o-", i) })
	ids := []string{"o-0", "nothing", "leased", "", "o-1", "o-1"}
	errs := c.CancelMany(f.t.Context(), orders, ids)
	for i, want := range []error{nil, task.ErrNotFound, nil, task.ErrInvalid, nil, task.ErrNotFound} {
		if !errors.Is(errs[i], want) {
			t.Errorf("%q: got %v, want %v", ids[i], errs[i], want)
		}
	}
	is(t, errs[1], task.ErrNotFound, "topic orders", `ID "nothing"`)
	f.inPlace(map[string]bool{"o-2": true})
	d := shard.Delivered{ID: "leased", Due: due, Scheduled: claimed[0].Scheduled.UnixMilli()}
	_, goesOn, err := f.AllowNext(f.t.Context(), d, due+time.Hour.Milliseconds(), time.Minute)
	check.OK(f.t, err)
	check.Equal(t, "its consumer may try it again", goesOn, false)

	check.Equal(t, "of no IDs", len(c.CancelMany(f.t.Context(), orders, nil)), 0)
	for _, err := range c.CancelMany(f.t.Context(), "bills", []string{"a", "b"}) {
		is(t, err, task.ErrUnknownTopic)
	}
	is(t, c.CancelMany(f.t.Context(), "no topic", []string{"a"})[0], task.ErrInvalid)
}

// TestCancelManyWaitsForReplicas: if one is missing, each task has the same error as from
// Cancel. A master has no replica, or one in a Redis Cluster.
func TestCancelManyWaitsForReplicas(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	ids := f.scheduled(f.client(), 4, func(i int) string { return fmt.Sprint("o-", i) })
	c, err := New(Config{Redis: f.rdb, Prefix: f.prefix, MinReplicas: 2})
	check.OK(f.t, err)
	for _, err := range c.CancelMany(f.t.Context(), orders, ids) {
		is(t, err, task.ErrReplicas)
	}
}

// TestRescheduleManyHasAResultForEachMove in their order. A later
// move of the same task wins.
func TestRescheduleManyHasAResultForEachMove(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	f.scheduled(c, 2500, func(i int) string { return fmt.Sprint("o-", i) })
	at := time.UnixMilli(f.now()).Add(2 * time.Hour).UTC()
	moves := []Move{{"nothing", In(time.Hour)}, {"", Now()}, {"o-1", When{}}, {"o-2", In(time.Hour)}, {"o-2", At(at)},
		{"o-3", In(2 * task.MaxAhead)}}
	for i := range 2400 {
		moves = append(moves, Move{fmt.Sprint("o-", 100+i), At(at.Add(time.Duration(i) * time.Millisecond))})
	}
	results := c.RescheduleMany(f.t.Context(), orders, moves)
	check.Equal(t, "results", len(results), len(moves))
	for i, want := range []error{task.ErrNotFound, task.ErrInvalid, task.ErrInvalid, nil, nil, task.ErrInvalid} {
		if !errors.Is(results[i].Err, want) || (want == nil) == results[i].Due.IsZero() {
			t.Errorf("%q: got %+v, want %v", moves[i].ID, results[i], want)
		}
	}
	is(t, results[0].Err, task.ErrNotFound, "topic orders", `ID "nothing"`)
	for i, m := range moves[4:] {
		if i == 1 {
			continue
		}
		check.OK(f.t, results[4+i].Err)
		s, err := c.Get(f.t.Context(), orders, m.ID)
		check.OK(f.t, err)
		want, _ := m.When.Instant()
		if !s.Due.Equal(want) || !results[4+i].Due.Equal(want) {
			t.Fatalf("%s is due %s, the result says %s, want %s", m.ID, s.Due, results[4+i].Due, want)
		}
	}
	for _, r := range c.RescheduleMany(f.t.Context(), "bills", moves[3:5]) {
		is(t, r.Err, task.ErrUnknownTopic)
	}
	check.Equal(t, "of no moves", len(c.RescheduleMany(f.t.Context(), orders, nil)), 0)
}

// TestIfPresentNeedsATask: Schedule and ScheduleMany replace what is stored, and store
// nothing else.
func TestIfPresentNeedsATask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	f.scheduled(c, 1, func(int) string { return "there" })
	there, missing := request("there", In(2*time.Hour)), request("missing", In(2*time.Hour))
	there.IfPresent, missing.IfPresent = true, true
	there.Payload = []byte("another")
	_, err := c.Schedule(f.t.Context(), missing)
	is(t, err, task.ErrNotFound, "topic orders", `ID "missing"`)
	_, err = c.Schedule(f.t.Context(), there)
	check.OK(f.t, err)
	results := c.ScheduleMany(f.t.Context(), []Request{missing, there, request("missing", In(time.Hour)), missing})
	is(t, results[0].Err, task.ErrNotFound)
	for _, r := range results[1:] {
		check.OK(f.t, r.Err)
	}
	s, err := c.Get(f.t.Context(), orders, "there")
	check.OK(f.t, err)
	check.Equal(t, "payload", string(s.Payload), "another")
	there.IfAbsent = true
	_, err = c.Schedule(f.t.Context(), there)
	is(t, err, task.ErrInvalid, "if_present")
}

// TestManyAreCancelledWhileTheShardCountChanges: movers move the tasks meanwhile, and the
// producer doesn't know of the change. The call needs several rounds, and no task
// returns.
func TestManyAreCancelledWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]int{{2, 5}, {5, 2}} {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, change[0])
			c := f.informed()
			ids := f.scheduled(c, 2600, func(i int) string { return fmt.Sprint("o-", i) })
			stays := f.scheduled(c, 200, func(i int) string { return fmt.Sprint("stays-", i) })
			want := map[string]bool{}
			for _, id := range stays {
				want[id] = true
			}
			p := f.begin(change[1])
			for i, id := range ids {
				if i%2 == 0 && p.Moving(id) {
					f.moveOne(p, p.Old(id), p.New(id), id)
				}
			}
			var moving sync.WaitGroup
			moving.Go(f.move)
			for i, err := range c.CancelMany(f.t.Context(), orders, ids) {
				if err != nil {
					t.Errorf("%s: %v", ids[i], err)
				}
			}
			moving.Wait()
			f.inPlace(want)
		})
	}
}

// TestGetManyIsGetInTheOrderOfTheIDs, also for large tasks, when a reply holds few.
func TestGetManyIsGetInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	c := f.client()
	f.scheduled(c, 1200, func(i int) string { return fmt.Sprint("o-", i) })
	var ids []string
	for i := range 1200 {
		ids = append(ids, fmt.Sprint("o-", 1199-i))
	}
	for i := range 12 {
		r := request(fmt.Sprint("large-", i), In(time.Hour))
		r.Payload, r.Headers = []byte(strings.Repeat(fmt.Sprint(i%10), 250<<10)), map[string]string{"k": "v"}
		_, err := c.Schedule(f.t.Context(), r)
		check.OK(f.t, err)
		ids = append(ids, r.ID)
	}
	results := c.GetMany(f.t.Context(), orders, append(ids, "nothing", "", "o-5"))
	for i, id := range append(ids, "", "", "o-5") {
		if id == "" {
			continue
		}
		check.OK(f.t, results[i].Err)
		got := results[i].Task
		check.Equal(t, "ID", got.ID, id)
		if i >= len(ids)-12 && i < len(ids) || i%200 == 0 {
			want, err := c.Get(f.t.Context(), orders, id)
			check.OK(f.t, err)
			check.Equal(t, "what is read of "+id, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
		}
	}
	is(t, results[len(ids)].Err, task.ErrNotFound, "topic orders", `ID "nothing"`)
	is(t, results[len(ids)+1].Err, task.ErrInvalid)
	is(t, c.GetMany(f.t.Context(), "bills", []string{"a"})[0].Err, task.ErrUnknownTopic)
}

// TestGetManyFindsTasksWhereverTheyLieDuringAChange: at their old shards, at their new
// shards, and from a producer that doesn't know of the change.
func TestGetManyFindsTasksWhereverTheyLieDuringAChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.informed()
	ids := f.scheduled(c, 300, func(i int) string { return fmt.Sprint("o-", i) })
	all := func(when string) {
		for i, r := range c.GetMany(f.t.Context(), orders, ids) {
			if r.Err != nil || r.Task.ID != ids[i] || r.Task.State != task.Waiting {
				t.Errorf("%s: %s: got %+v", when, ids[i], r)
			}
		}
	}
	p := f.begin(5)
	all("nothing has moved")
	for i, id := range ids {
		if i%2 == 0 && p.Moving(id) {
			f.moveOne(p, p.Old(id), p.New(id), id)
		}
	}
	all("half has moved")
	f.move()
	all("the change has ended")
}
