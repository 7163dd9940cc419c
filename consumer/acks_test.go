package consumer

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpansKnowTheFirstGap: tags are added in any order. The set finds the first gap, and
// holds at most one span more than there are gaps.
func TestSpansKnowTheFirstGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tags := rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).Draw(t, "tags")
		var s spans
		there := map[uint64]bool{}
		for _, tag := range tags {
			s.add(tag)
			there[tag] = true
			first, gaps := uint64(0), 0
			for there[first+1] {
				first++
			}
			for i := uint64(1); i <= uint64(len(tags)); i++ {
				if !there[i] && there[i+1] {
					gaps++
				}
			}
			if got := s.first(); got != first {
				t.Fatalf("%v: no gap up to %d, want %d", s, got, first)
			}
			if len(s) > gaps+1 {
				t.Fatalf("%v: %d spans with %d gaps", s, len(s), gaps)
			}
		}
	})
}
