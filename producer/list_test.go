package producer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// listed returns the IDs that a filter yields, in order.
func (f *fleet) listed(c *Client, filter Filter) (ids []string) {
	f.t.Helper()
	for s, err := range c.List(f.t.Context(), orders, filter) {
		check.OK(f.t, err)
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestListYieldsWhatIsAskedFor filters by state, ID prefix, due time and limit.
func TestListYieldsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	c := f.client()
	for _, id := range []string{"leased", "parked"} {
		_, err := c.Schedule(f.t.Context(), request(id, Now()))
		check.OK(f.t, err)
	}
	for _, claimed := range f.claimAll() {
		if claimed.ID == "parked" {
			lease := shard.Lease{ID: "parked", Token: claimed.Token}
			back := shard.Release{Lease: lease, Park: true, Attempted: true, Reason: "no queue"}
			_, err := f.Shard(f.placement().New("parked")).Release(f.t.Context(), []shard.Release{back})
			check.OK(f.t, err)
		}
	}
	due := time.UnixMilli(f.now()).Add(time.Hour)
	for id, after := range map[string]time.Duration{"a*-1": 0, "a*-2": time.Millisecond, "a*-3": time.Hour, "ab-4": 0} {
		_, err := c.Schedule(f.t.Context(), request(id, At(due.Add(after))))
		check.OK(f.t, err)
	}
	for name, of := range map[string]struct {
		filter Filter
		want   string
	}{
		"all":                {Filter{}, "a*-1 a*-2 a*-3 ab-4 leased parked"},
		"a prefix":           {Filter{Prefix: "a*"}, "a*-1 a*-2 a*-3"},
		"waiting":            {Filter{State: task.Waiting}, "a*-1 a*-2 a*-3 ab-4"},
		"leased":             {Filter{State: task.Leased}, "leased"},
		"parked":             {Filter{State: task.Parked, WithoutPayload: true}, "parked"},
		"a window":           {Filter{DueFrom: due, DueTo: due}, "a*-1 ab-4"},
		"from":               {Filter{DueFrom: due.Add(time.Millisecond)}, "a*-2 a*-3"},
		"to":                 {Filter{DueTo: due.Add(time.Millisecond)}, "a*-1 a*-2 ab-4 leased parked"},
		"waiting to, prefix": {Filter{DueTo: due.Add(time.Millisecond), State: task.Waiting, Prefix: "a*"}, "a*-1 a*-2"},
		"none":               {Filter{Prefix: "b"}, ""},
	} {
		if got := strings.Join(f.listed(c, of.filter), " "); got != of.want {
			t.Errorf("%s: got %s, want %s", name, got, of.want)
		}
	}
	for limit := 1; limit < 4; limit++ {
		check.Equal(t, "limited", len(f.listed(c, Filter{Limit: limit})), limit)
		check.Equal(t, "limited, waiting", len(f.listed(c, Filter{State: task.Waiting, Limit: limit})), limit)
	}
	for _, without := range []bool{false, true} {
		for _, filter := range []Filter{{WithoutPayload: without}, {WithoutPayload: without, DueTo: due.Add(2 * time.Hour)}} {
			f.asGet(c, filter)
		}
	}
	for what, filter := range map[string]Filter{"state": {State: "retrying"}, "limit": {Limit: -1}} {
		for _, err := range c.List(f.t.Context(), orders, filter) {
			is(t, err, task.ErrInvalid, what)
		}
	}
	for _, err := range c.List(f.t.Context(), "bills", Filter{}) {
		is(t, err, task.ErrUnknownTopic)
	}
}

// asGet ends the test unless the filter yields the same as Get, except for a payload that
// is left out.
func (f *fleet) asGet(c *Client, filter Filter) {
	f.t.Helper()
	for got, err := range c.List(f.t.Context(), orders, filter) {
		check.OK(f.t, err)
		want, err := c.Get(f.t.Context(), orders, got.ID)
		check.OK(f.t, err)
		if filter.WithoutPayload {
			want.Payload = nil
		}
		check.Equal(f.t, "what is listed of "+got.ID, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
}

// TestListYieldsWhatStaysOnce lists thousands of tasks while the shard count changes and
// half of them get other due times.
func TestListYieldsWhatStaysOnce(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]Filter{
		"all": {}, "a prefix": {Prefix: "o-"}, "waiting": {State: task.Waiting}, "a window": {DueFrom: time.Now()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3)
			c := f.client()
			ids := f.scheduled(c, 3000, func(i int) string { return fmt.Sprint("o-", i) })
			must := map[string]bool{}
			for i, id := range ids {
				must[id] = filter.State == "" && filter.DueFrom.IsZero() || i%2 == 1
			}
			met := map[string]int{}
			for s, err := range c.List(f.t.Context(), orders, filter) {
				check.OK(f.t, err)
				check.Equal(t, "payload", string(s.Payload), "payload of "+s.ID)
				if met[s.ID]++; len(met) != len(ids)/2 {
					continue
				}
				for i := 0; i < len(ids); i += 2 {
					_, err := c.Reschedule(f.t.Context(), orders, ids[i], In(time.Duration(1+i%3)*time.Hour/2))
					check.OK(f.t, err)
				}
				f.begin(7)
				f.move()
			}
			for _, id := range ids {
				if met[id] > 1 || must[id] && met[id] == 0 {
					t.Fatalf("%s was yielded %d times", id, met[id])
				}
			}
		})
	}
}

// TestListEndsWhereItsCallerDoes, and an unreadable task doesn't hide others.
func TestListEndsWhereItsCallerDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	f.scheduled(c, 5, func(i int) string { return fmt.Sprint("o-", i) })
	check.OK(f.t, f.rdb.HSet(f.t.Context(), f.prefix+":task:{orders:0}", "o-3", "\x14cut").Err())
	for _, filter := range []Filter{{}, {State: task.Waiting}, {WithoutPayload: true}} {
		good, bad := 0, ""
		for s, err := range c.List(f.t.Context(), orders, filter) {
			if err == nil {
				good++
			} else {
				bad += s.Topic + " " + s.ID + ": " + err.Error()
			}
		}
		check.Equal(t, "readable", good, 4)
		check.Equal(t, "unreadable", bad, `orders o-3: topic orders, ID "o-3": record of 4 bytes is cut short`)
	}
	n := 0
	for _, err := range c.List(f.t.Context(), orders, Filter{}) {
		_ = err // one of the five may be unreadable
		if n++; n == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel()
	for _, err := range c.List(ctx, orders, Filter{}) {
		is(t, err, task.ErrUnavailable)
	}
}

// TestListReadsNoMoreThanItsWindow: only a few of thousands of tasks are due in the
// window. List reads one page of waiting, one of parked and one of leased tasks.
func TestListReadsNoMoreThanItsWindow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	f.scheduled(c, 4000, func(i int) string { return fmt.Sprint("later-", i) })
	_, err := c.Schedule(f.t.Context(), request("soon", In(time.Minute)))
	check.OK(f.t, err)
	var calls atomic.Int64 // of scripts and scans
	faults.Before(f.rdb, func(r faults.Request) {
		if name := r.Commands[0].Name(); !r.Pipelined && (name == "evalsha" || name == "zscan") {
			calls.Add(1)
		}
	})
	for range 2 { // the first loads the script
		calls.Store(0)
		ids := f.listed(c, Filter{DueTo: time.Now().Add(10 * time.Minute)})
		check.Equal(t, "listed", strings.Join(ids, " "), "soon")
	}
	if n := calls.Load(); n > 5 {
		t.Errorf("read %d pages", n)
	}
	calls.Store(0)
	check.Equal(t, "all", len(f.listed(c, Filter{})), 4001)
	if n := calls.Load(); n < 4001/150 {
		t.Errorf("read all in %d pages", n)
	}
}
