package shard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// setAside parks tasks of shard 0 that have no record, or removes them.
func (c *sandbox) setAside(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: math.Inf(1), Member: id}).Err())
	}
}

func (c *sandbox) takeAway(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		check.OK(c.t, c.rdb.ZRem(c.t.Context(), c.Shard(0).due(), id).Err())
	}
}

// TestAListVisitsWhatIsParkedOnce: tasks are parked, parked again and removed between
// pages. The list still has each task once, in order, that was parked at its start and stays.
func TestAListVisitsWhatIsParkedOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	name := rapid.Custom(func(r *rapid.T) string { return fmt.Sprintf("%02d", rapid.IntRange(0, 60).Draw(r, "id")) })
	names := rapid.SliceOfNDistinct(name, 0, 40, rapid.ID[string])
	rapid.Check(t, func(r *rapid.T) {
		check.OK(c.t, c.rdb.Del(c.t.Context(), c.Shard(0).due()).Err())
		stay := names.Draw(r, "parked")
		c.setAside(stay...)
		list := c.Shard(0).Parked()
		var visited []string
		for {
			list.tasks = int64(rapid.IntRange(1, 5).Draw(r, "page"))
			page, err := list.Next(c.t.Context())
			check.OK(c.t, err)
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				visited = append(visited, p.ID)
			}
			gone := names.Draw(r, "gone")
			c.takeAway(gone...)
			stay = slices.DeleteFunc(stay, func(id string) bool {
				return slices.Contains(gone, id) &&
					!slices.Contains(visited, id)
			})
			c.setAside(names.Draw(r, "again")...)
		}
		if !slices.IsSorted(visited) || len(slices.Compact(slices.Clone(visited))) != len(visited) {
			r.Fatalf("visited %s", strings.Join(visited, " "))
		}
		for _, id := range stay {
			if !slices.Contains(visited, id) {
				r.Fatalf("%s was missed among %s", id, strings.Join(visited, " "))
			}
		}
	})
}

// TestAListIsOverThoughAllIsParkedAgain: the list needs few requests for each page,
// even if visited tasks come before the next page.
func TestAListIsOverThoughAllIsParkedAgain(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const n, page = 3000, 10
	members := make([]redis.Z, n)
	for i := range members {
		members[i] = redis.Z{Score: math.Inf(1), Member: fmt.Sprintf("%06d", i)}
	}
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), members...).Err())
	sent := 0
	faults.Before(c.rdb, func(faults.Request) { sent++ })
	list := c.Shard(0).Parked()
	list.tasks = page
	visited := 0
	for {
		records, err := list.Next(c.t.Context())
		check.OK(c.t, err)
		if len(records) == 0 {
			break
		}
		visited += len(records)
	}
	check.Equal(t, "visited", visited, n)
	if most := 2 + n/page; sent > most {
		t.Errorf("%d requests, want at most %d", sent, most)
	}
}
