package shard

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// listAll returns the tasks of a list, in order.
func (c *sandbox) listAll(l *List, each func(page []Stored)) (all []Stored) {
	c.t.Helper()
	for {
		page, err := l.Next(c.t.Context())
		check.OK(c.t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		if each != nil {
			each(page)
		}
	}
}

func listedIDs(tasks []Stored) []string {
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	return ids
}

// TestAListShowsEveryStateAsReadDoes: List and read return the same, except for content
// type, headers and payload.
func TestAListShowsEveryStateAsReadDoes(t *testing.T) {
	t.Parallel()
	c := sandboxWithTasks(t)
	c.claimIDs("leased")
	c.put(task.Now(), "retried")
	// after "there"
	back := Release{Lease: leases(c.claimIDs("retried"))[0], Attempted: true, Reason: "no queue", Delay: 2 * time.Hour}
	check.Equal(t, "given back", c.release(back), 1)
	for state, want := range map[task.State][]string{task.Parked: {"parked"}, task.Waiting: {"there", "retried"},
		task.Leased: {"leased"}} {
		tasks := c.listAll(c.Shard(0).List(SpanOf(state), ""), nil)
		if got := listedIDs(tasks); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", state, got, want)
		}
		for _, got := range tasks {
			want := c.read(got.ID)
			same := got.State == want.State && got.Next.Equal(want.Next) && got.Due.Equal(want.Due) &&
				got.Scheduled.Equal(want.Scheduled) &&
				got.Attempt == want.Attempt && got.Reason == want.Reason && got.Redelivered == want.Redelivered && got.Err == nil &&
				got.Payload == nil
			if !same {
				t.Errorf("listed %+v, read %+v", got, want)
			}
		}
	}
	due := c.read("there").Due
	for span, want := range map[Span]int{
		SpanOf(task.Waiting).Within(due, due):                                1,
		SpanOf(task.Waiting).Within(due.Add(time.Millisecond), time.Time{}):  1, // retried
		SpanOf(task.Waiting).Within(time.Time{}, due.Add(-time.Millisecond)): 0,
	} {
		if got := c.listAll(c.Shard(0).List(span, ""), nil); len(got) != want {
			t.Errorf("%v: %q, want %d", span, listedIDs(got), want)
		}
	}
}

// TestAListMeetsWhatStaysOnceInOrder lists thousands of tasks of one due time and some of
// other times. Meanwhile half of them are removed or moved to the front or the back, also
// the last one listed.
func TestAListMeetsWhatStaysOnceInOrder(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	at := c.now() + time.Hour.Milliseconds()
	var stay, leave []string
	for batch := range 6 {
		b := Put{}
		for i := range 500 {
			id := fmt.Sprintf("ä\x00%c-%d-%d", 'A'+rune(i%60), batch, i)
			due := at
			if i%5 == 0 {
				due += int64(batch*500 + i)
			}
			b.Entries = append(b.Entries, entry(id, task.At(time.UnixMilli(due))))
			if i%2 == 0 {
				stay = append(stay, id)
			} else {
				leave = append(leave, id)
			}
		}
		check.OK(c.t, c.tryPut(c.p, b).Err)
	}
	const prefix = "ä\x00"
	listed := c.listAll(c.Shard(0).List(SpanOf(task.Waiting), prefix), func(page []Stored) {
		some := []string{page[len(page)-1].ID}
		for range 40 {
			some = append(some, leave[rand.IntN(len(leave))])
		}
		for i, id := range some {
			if !slices.Contains(leave, id) {
				continue
			}
			switch i % 3 {
			case 0:
				c.delete(id)
			case 1:
				check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: 1, Member: id}).Err())
			default:
				check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: float64(at + 1e6), Member: id}).Err())
			}
		}
	})
	var met []string
	for _, s := range listed {
		if slices.Contains(stay, s.ID) {
			met = append(met, s.ID)
		}
	}
	slices.Sort(stay)
	if got := slices.Sorted(slices.Values(met)); !slices.Equal(got, stay) {
		t.Errorf("of %d tasks that stayed %d were listed", len(stay), len(got))
	}
	if !slices.IsSortedFunc(listed, func(a, b Stored) int {
		if n := a.Next.Compare(b.Next); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	}) {
		t.Error("they are not in order")
	}
}

// TestAListFindsIDsByTheirBeginning: pattern characters in a prefix have no special
// meaning.
func TestAListFindsIDsByTheirBeginning(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "a*b", "a*c", "axb", "[a", "b", "a")
	for prefix, want := range map[string]string{"a*": "a*b a*c", "[": "[a", "a": "a a*b a*c axb", "": "[a a a*b a*c axb b",
		"ab": ""} {
		tasks := c.listAll(c.Shard(0).List(SpanOf(task.Waiting), prefix), nil)
		if got := slices.Sorted(slices.Values(listedIDs(tasks))); strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %s", prefix, got, want)
		}
	}
}

// TestAListNamesWhatCannotBeRead: records that are damaged, missing or of a newer format
// don't hide others.
func TestAListNamesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "cut", "newer", "none", "whole")
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), "cut", "\x14cut", "newer", "\x50"+strings.Repeat("x",
		40)).Err())
	check.OK(c.t, c.rdb.HDel(c.t.Context(), c.Shard(0).tasks(), "none").Err())
	got := map[string]string{}
	for _, s := range c.listAll(c.Shard(0).List(SpanOf(task.Waiting), ""), nil) {
		got[s.ID] = s.Reason
		var newer *FormatError
		if (s.Err == nil) != (s.ID == "whole") || errors.As(s.Err, &newer) != (s.ID == "newer") {
			t.Errorf("%s: %v", s.ID, s.Err)
		}
	}
	if len(got) != 4 || got["cut"] != "record of 4 bytes is cut short" || got["none"] != "it has no record" {
		t.Errorf("got %q", got)
	}
}

// TestAListShowsWhatAMoverHasAsItStoodBefore: a waiting task that a mover has isn't shown
// as leased.
func TestAListShowsWhatAMoverHasAsItStoodBefore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.In(time.Hour), "a")[0]
	c.put(task.Now(), "p")
	c.park("p", "why")
	c.begin(2)
	_, err := c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
	export, err := c.Shard(0).Export(c.t.Context(), c.p, Export{Claimant: "m", Request: "1", Lease: time.Hour,
		IDs: []string{"a", "p"}})
	check.OK(c.t, err)
	check.Equal(t, "exported", len(export.Tasks), 2)
	for _, s := range c.listAll(c.Shard(0).List(SpanOf(task.Leased), ""), nil) {
		waits := s.ID == "a" && s.State == task.Waiting && s.Next.UnixMilli() == due
		if parked := s.ID == "p" && s.State == task.Parked && s.Next.IsZero() && s.Reason == "why"; !waits && !parked {
			t.Errorf("listed %+v", s)
		}
	}
}

// TestAPageOfAListIsBounded: large records make small pages, and the list skips a page
// without IDs of the prefix.
func TestAPageOfAListIsBounded(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for batch := range 3 {
		b := Put{}
		for i := range MaxBatch {
			b.Entries = append(b.Entries, entry(fmt.Sprintf("small-%d-%04d", batch, i), task.In(time.Hour)))
		}
		check.OK(c.t, c.tryPut(c.p, b).Err)
	}
	for i := range 5 {
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: fmt.Sprint("large-", i), When: task.In(2 * time.Hour),
			Body: body(strings.Repeat("x", 256<<10))}}}).Err)
	}
	sizes := func(prefix string) (sizes []int) {
		c.listAll(c.Shard(0).List(Span{0, math.Inf(1)}, prefix), func(page []Stored) { sizes = append(sizes, len(page)) })
		return sizes
	}
	if got := sizes("large"); !slices.Equal(got, []int{2, 2, 1}) {
		t.Errorf("large records: pages of %d", got)
	}
	if got := sizes("small"); slices.Max(got) != listTasks || len(got) != 3*MaxBatch/listTasks {
		t.Errorf("small records: pages of %d", got)
	}
}
