package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxGap is the longest time between two points that a line joins.
	maxGap = 4 * sampleEvery
	// The size of a sparkline, in units of its SVG.
	sparkWidth  = 60
	sparkHeight = 16
)

// paceView has a topic's charts of the last hour.
type paceView struct {
	Width, Height int
	Charts        []lineChart
	Points        []point
	// From and To are the ends of the charts.
	From, To time.Time
	// Since is when the console began to know, zero if it knows the whole hour.
	Since time.Time
}

// lineChart is one chart. Text says the same.
type lineChart struct {
	Title, Text string
	Max         string
	Lines       []line
}

// line is one line of a chart. Class is its style.
type line struct{ Class, Path string }

func newPaceView(points []point, since, now time.Time) paceView {
	v := paceView{Width: chartWidth, Height: chartHeight, Points: points, From: now.Add(-samplesLast), To: now}
	if since.Sub(v.From) > sampleEvery {
		v.Since = since
	}
	pace := curve{points, now, chartWidth, chartHeight, func(m measure) float64 { return m.PerSecond }, true}
	median, worst := pace, pace
	median.of, median.zeros = func(m measure) float64 { return m.Median }, false
	worst.of, worst.zeros = func(m measure) float64 { return m.Worst }, false
	v.Charts = []lineChart{
		{Title: "Forwarded", Max: rate(pace.max()), Text: paceWords(points), Lines: []line{{"solid", pace.path(pace.max())}}},
		{Title: "Late", Max: seconds(worst.max()), Text: lateWords(points, median, worst),
			Lines: []line{{"dashed", median.path(worst.max())}, {"solid", worst.path(worst.max())}}},
	}
	return v
}

// paceWords says what the chart of forwarded tasks shows.
func paceWords(points []point) string {
	if len(points) == 0 {
		return "Forwarded in the last hour: not known."
	}
	least, most := points[0].PerSecond, points[0].PerSecond
	for _, p := range points {
		least, most = min(least, p.PerSecond), max(most, p.PerSecond)
	}
	return fmt.Sprintf("Forwarded in the last hour: %s at last, %s at least, %s at most.",
		rate(points[len(points)-1].PerSecond), rate(least), rate(most))
}

// lateWords says what the chart of lateness shows.
func lateWords(points []point, median, worst curve) string {
	if worst.max() == 0 {
		return "Late in the last hour: nothing was forwarded, or nobody knows."
	}
	last := points[len(points)-1]
	return fmt.Sprintf("Late in the last hour: p50 %s at last, %s at most; p99 %s at last, %s at most.",
		seconds(last.Median), seconds(median.max()), seconds(last.Worst), seconds(worst.max()))
}

// curve draws one value of points in the hour before now.
type curve struct {
	points        []point
	now           time.Time
	width, height int
	of            func(measure) float64
	// zeros is true if 0 is a value; otherwise it means that there is none.
	zeros bool
}

func (c curve) max() (most float64) {
	for _, p := range c.points {
		most = max(most, c.of(p.measure))
	}
	return most
}

// path returns the curve as the path of an SVG, with most at the top. It has a gap where
// samples or values are missing.
func (c curve) path(most float64) string {
	var out strings.Builder
	var before time.Time
	for _, p := range c.points {
		value := c.of(p.measure)
		if value == 0 && !c.zeros {
			before = time.Time{}
			continue
		}
		x := float64(c.width) * (1 - float64(c.now.Sub(p.At))/float64(samplesLast))
		y := float64(c.height) - 1
		if most > 0 {
			y -= value / most * float64(c.height-2)
		}
		if p.At.Sub(before) > maxGap {
			fmt.Fprintf(&out, "M%.0f %.0fh0", x, y) // h0 shows a point without neighbours
		} else {
			fmt.Fprintf(&out, "L%.0f %.0f", x, y)
		}
		before = p.At
	}
	return out.String()
}

// spark is the small chart of what a topic forwarded in the last hour. Text says the same.
type spark struct {
	Width, Height int
	Path, Text    string
}

func newSpark(points []point, now time.Time) spark {
	var peaks []point // of each two points, because every event has the charts of all topics
	for pair := range slices.Chunk(points, 2) {
		peaks = append(peaks, slices.MaxFunc(pair, func(a, b point) int { return cmp.Compare(a.PerSecond, b.PerSecond) }))
	}
	c := curve{peaks, now, sparkWidth, sparkHeight, func(m measure) float64 { return m.PerSecond }, true}
	return spark{sparkWidth, sparkHeight, c.path(c.max()), paceWords(points)}
}
