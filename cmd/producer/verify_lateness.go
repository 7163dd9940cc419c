package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	// The fine buckets begin at latenessFirst, and each is 2^(1/8) times the one before. So
	// a percentile is at most 9 % too large.
	latenessFirst  = 100 * time.Microsecond
	latenessSteps  = 8
	latenessFine   = 256
	latenessBarMax = 40
)

// latenesses counts tasks by how late they were, in constant memory.
type latenesses struct {
	fine  [latenessFine]int64
	shown []int64 // by latenessBounds, and one more for all above
	count int64
	max   time.Duration
}

// latenessBounds returns the bounds of the histogram that the report shows.
func latenessBounds() (bounds []time.Duration) {
	for power := time.Millisecond; power <= 100*time.Second; power *= 10 {
		bounds = append(bounds, power, 2*power, 5*power)
	}
	return bounds
}

// add counts a task.
func (l *latenesses) add(late time.Duration) {
	bounds := latenessBounds()
	if l.shown == nil {
		l.shown = make([]int64, len(bounds)+1)
	}
	l.count++
	l.max = max(l.max, late)
	i := 0
	if late > latenessFirst {
		i = int(math.Ceil(latenessSteps * math.Log2(float64(late)/float64(latenessFirst))))
	}
	l.fine[min(i, latenessFine-1)]++
	at := 0
	for at < len(bounds) && late > bounds[at] {
		at++
	}
	l.shown[at]++
}

// quantile returns an upper bound for how late the share q of the tasks was.
func (l *latenesses) quantile(q float64) time.Duration {
	rank, seen := int64(math.Ceil(q*float64(l.count))), int64(0)
	for i, n := range l.fine {
		if seen += n; seen >= rank && n > 0 {
			bound := time.Duration(float64(latenessFirst) * math.Exp2(float64(i)/latenessSteps))
			return min(bound, l.max)
		}
	}
	return l.max
}

// latenessBucket is one bucket of the histogram in the report.
type latenessBucket struct {
	// UpToMillis is the upper bound, null for the last bucket.
	UpToMillis *float64 `json:"up_to_ms"`
	Tasks      int64    `json:"tasks"`
}

// buckets returns the histogram from the first to the last bucket that isn't empty.
func (l *latenesses) buckets() []latenessBucket {
	all := []latenessBucket{}
	bounds := latenessBounds()
	for i, n := range l.shown {
		if n == 0 && len(all) == 0 {
			continue
		}
		b := latenessBucket{Tasks: n}
		if i < len(bounds) {
			millis := millis(bounds[i])
			b.UpToMillis = &millis
		}
		all = append(all, b)
	}
	for len(all) > 0 && all[len(all)-1].Tasks == 0 {
		all = all[:len(all)-1]
	}
	return all
}

// millis returns a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// latenessChart draws the histogram for people, with lines of at most 60 columns.
func latenessChart(all []latenessBucket) string {
	most := int64(1)
	for _, b := range all {
		most = max(most, b.Tasks)
	}
	var text strings.Builder
	for _, b := range all {
		bound := "  later"
		if b.UpToMillis != nil {
			bound = fmt.Sprintf("%7s", time.Duration(*b.UpToMillis*float64(time.Millisecond)))
		}
		width := int(math.Ceil(float64(b.Tasks) / float64(most) * latenessBarMax))
		line := fmt.Sprintf("  %s %9d %s", bound, b.Tasks, strings.Repeat("#", width))
		text.WriteString("\n" + strings.TrimRight(line, " "))
	}
	return text.String()
}
