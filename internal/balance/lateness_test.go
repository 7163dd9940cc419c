package balance

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

// TestQuantilesOfAFleet: several members count tasks and report the counts. A quantile is
// at most a fifth above the true one, and never below it.
func TestQuantilesOfAFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		late := rapid.SliceOfN(rapid.Int64Range(int64(firstBound), int64(48*time.Hour)), 1, 200).Draw(t, "late")
		members := make([]Lateness, rapid.IntRange(1, 4).Draw(t, "members"))
		for i, d := range late {
			m := &members[i%len(members)]
			if *m == nil {
				*m = Lateness{}
			}
			(*m)[LatenessBucket(time.Duration(d))]++
		}
		var all TopicNote
		for _, m := range members {
			note, err := json.Marshal(TopicNote{Lateness: m})
			check.OK(t, err)
			var heard TopicNote
			check.OK(t, json.Unmarshal(note, &heard))
			all = all.Plus(heard)
		}
		slices.Sort(late)
		for _, q := range []float64{.5, .99, 1} {
			want := float64(late[int(math.Ceil(q*float64(len(late))))-1])
			if got := float64(all.Lateness.Quantile(q)); got < want-1 || got > 1.2*want {
				t.Fatalf("quantile %v is %v, want %v", q, time.Duration(got), time.Duration(want))
			}
		}
	})
}

// TestLatenessHasNoBoundaries: early tasks and those that are years late are counted.
func TestLatenessHasNoBoundaries(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]int{
		-time.Hour: 0, 0: 0, firstBound: 0, firstBound + 1: 1, 2 * firstBound: 4, math.MaxInt64: LatenessBuckets - 1,
	} {
		if got := LatenessBucket(late); got != want {
			t.Errorf("%v is in bucket %d, want %d", late, got, want)
		}
	}
	if got := (Lateness{}).Quantile(.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}
