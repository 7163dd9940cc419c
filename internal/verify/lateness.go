package verify

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
)

// chartBar is the length of the longest bar in the chart.
const chartBar = 36

// Bucket is one bucket of the histogram in the report.
type Bucket struct {
	// UpToMillis is the upper bound, null for tasks that are days late.
	UpToMillis *float64 `json:"up_to_ms"`
	Tasks      int64    `json:"tasks"`
}

// buckets returns the histogram from the first to the last bucket that isn't empty. Each
// bound is twice the bound before it.
func buckets(late balance.Lateness) []Bucket {
	all := []Bucket{}
	left := int64(0)
	for _, n := range late {
		left += n
	}
	const step = balance.LatenessPerDouble
	for last := 0; left > 0; last += step {
		var b Bucket
		for i := last - step + 1; i <= last; i++ {
			b.Tasks += late[i]
		}
		if last < balance.LatenessBuckets-1 {
			bound := millis(balance.LatenessBound(last))
			b.UpToMillis = &bound
		}
		if left -= b.Tasks; b.Tasks > 0 || len(all) > 0 {
			all = append(all, b)
		}
	}
	return all
}

// millis returns a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// chart draws the histogram for people, with lines of at most 60 columns.
func chart(all []Bucket) string {
	most := int64(1)
	for _, b := range all {
		most = max(most, b.Tasks)
	}
	var text strings.Builder
	for _, b := range all {
		bound := "later"
		if b.UpToMillis != nil {
			bound = strconv.FormatFloat(*b.UpToMillis, 'f', -1, 64) + " ms"
		}
		width := int(math.Ceil(float64(b.Tasks) / float64(most) * chartBar))
		line := fmt.Sprintf("  %11s %9d %s", bound, b.Tasks, strings.Repeat("#", width))
		text.WriteString("\n" + strings.TrimRight(line, " "))
	}
	return text.String()
}
