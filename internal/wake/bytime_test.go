package wake

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

type timedNumber struct {
	at    time.Time
	place int
}

func (n *timedNumber) When() time.Time { return n.at }
func (n *timedNumber) Place() *int     { return &n.place }

// TestByTimeKeepsTheOrder compares it with a list that is searched.
func TestByTimeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b ByTime[*timedNumber]
		all := make([]*timedNumber, 8)
		for i := range all {
			all[i] = &timedNumber{}
		}
		var there []*timedNumber
		first := func() *timedNumber {
			return slices.MinFunc(there, func(a, b *timedNumber) int { return a.at.Compare(b.at) })
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			n := rapid.SampledFrom(all).Draw(t, "number")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				n.at = time.Unix(rapid.Int64Range(0, 20).Draw(t, "time"), 0)
				if b.Put(n); !slices.Contains(there, n) {
					there = append(there, n)
				}
			case 1:
				b.Remove(n)
				there = slices.DeleteFunc(there, func(x *timedNumber) bool { return x == n })
			case 2:
				now := time.Unix(rapid.Int64Range(0, 20).Draw(t, "now"), 0)
				got, ok := b.Take(now)
				check.Equal(t, "taken", ok, len(there) > 0 && !first().at.After(now))
				if ok {
					check.Equal(t, "its time", got.at, first().at)
					there = slices.DeleteFunc(there, func(x *timedNumber) bool { return x == got })
				}
			}
			got, ok := b.First()
			check.Equal(t, "some are there", ok, len(there) > 0)
			if ok {
				check.Equal(t, "the first", got.at, first().at)
			}
		}
	})
}
