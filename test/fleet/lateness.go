package fleet

import (
	"fmt"
	"strings"
	"time"
)

// Lateness holds arrival minus due for many messages, in ascending order.
type Lateness []time.Duration

// At returns the lateness that the given share of the messages doesn't exceed: 0.5 gives
// the median, 1 the largest. Without messages it returns 0.
func (l Lateness) At(share float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	i := int(share*float64(len(l))+0.999999) - 1
	return l[min(max(i, 0), len(l)-1)]
}

// bounds returns the upper ends of all rows of the histogram except the last.
func bounds() []time.Duration {
	var all []time.Duration
	for _, d := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		all = append(all, d, 2*d, 5*d)
	}
	return append(all, 10*time.Second)
}

// Histogram returns a few lines of text, from the row with the smallest lateness to the
// row with the largest. A bar has at most width characters.
func (l Lateness) Histogram(width int) string {
	if len(l) == 0 {
		return ""
	}
	ends := bounds()
	counts := make([]int, len(ends)+1)
	most, row := 0, 0
	for _, d := range l {
		for row < len(ends) && d > ends[row] {
			row++
		}
		counts[row]++
		most = max(most, counts[row])
	}
	first := 0
	for counts[first] == 0 {
		first++
	}
	var b strings.Builder
	for i := first; i <= row; i++ {
		name := "more"
		if i < len(ends) {
			name = "<= " + ends[i].String()
		}
		bar := strings.Repeat("#", (counts[i]*width+most-1)/most)
		fmt.Fprintf(&b, "  %8s %8d %s\n", name, counts[i], bar)
	}
	return b.String()
}
