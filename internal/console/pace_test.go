package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/heartbeat"
)

// scanners returns a fleet of scanners; the last one is dead. Each forwards tasks of topic
// orders at a pace. All of them were late by at most a second.
func scanners(perSecond ...float64) (fleet []balance.Member) {
	for i, pace := range perSecond {
		late := balance.Lateness{balance.LatenessBucket(time.Second): 100}
		fleet = append(fleet, balance.Member{Alive: i < len(perSecond)-1,
			Topics: map[string]balance.TopicNote{"orders": {PerSecond: pace, Lateness: late}, "idle": {Paused: true}}})
	}
	return fleet
}

// TestSamples add up what live scanners report, are kept for an hour, and have the fastest
// topics.
func TestSamples(t *testing.T) {
	t.Parallel()
	var s samples
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for at := began; at.Before(began.Add(2 * time.Hour)); at = at.Add(sampleEvery) {
		s.add(newSample(at, scanners(2, 3, 100)))
	}
	now := began.Add(2 * time.Hour)
	points, since := s.of("orders", now)
	check.Equal(t, "kept", len(points), int(samplesLast/sampleEvery))
	check.Equal(t, "since", since, now.Add(-samplesLast-sampleEvery))
	check.Equal(t, "a second", points[0].PerSecond, 5)
	if p := points[0]; p.Median < 1 || p.Median > 1.2 || p.Worst != p.Median {
		t.Errorf("late by %v and %v, want a second or a fifth more", p.Median, p.Worst)
	}
	points, _ = s.of("idle", now)
	check.Equal(t, "idle", points[0].measure, measure{})

	many := balance.Member{Alive: true, Topics: map[string]balance.TopicNote{}}
	for i := range maxSampled + 1 {
		many.Topics[fmt.Sprintf("t%d", i)] = balance.TopicNote{PerSecond: float64(i + 1)}
	}
	cut := newSample(now, []balance.Member{many})
	check.Equal(t, "topics", len(cut.topics), maxSampled)
	s.add(cut)
	for topic, want := range map[string]int{"t0": 0, "t1": 1} {
		points, _ = s.of(topic, now)
		last := 0
		if len(points) > 0 && points[len(points)-1].At.Equal(now) {
			last = 1
		}
		check.Equal(t, "newest point of "+topic, last, want)
	}
}

// TestPace: the charts have a gap where samples are missing and where no task was late, and
// the words say the same.
func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	at := func(before time.Duration, m measure) point { return point{now.Add(-before), m} }
	points := []point{at(30*time.Minute, measure{10, 1, 2}), at(29*time.Minute+30*time.Second, measure{20, 2, 4}),
		at(time.Minute, measure{}), at(30*time.Second, measure{5, 1, 1})}
	v := newPaceView(points, points[0].At, now)
	check.Equal(t, "since", v.Since, points[0].At)
	check.Equal(t, "words", v.Charts[0].Text, "Forwarded in the last hour: 5/s at last, 0/s at least, 20/s at most.")
	check.Equal(t, "words", v.Charts[1].Text,
		"Late in the last hour: p50 1 s at last, 2 s at most; p99 1 s at last, 4 s at most.")
	check.Equal(t, "forwarded", v.Charts[0].Lines[0].Path, "M360 60h0L366 1M708 119h0L714 90")
	check.Equal(t, "p99", v.Charts[1].Lines[1].Path, "M360 60h0L366 1M714 90h0")
	check.Equal(t, "spark", newSpark(points, now).Path, "M30 1h0M60 12h0")
	if v = newPaceView(points, now.Add(-samplesLast), now); !v.Since.IsZero() {
		t.Errorf("it says that it knows since %s, and knows the whole hour", v.Since)
	}
	v = newPaceView(nil, time.Time{}, now)
	check.Equal(t, "nothing", v.Charts[0].Text+v.Charts[0].Lines[0].Path, "Forwarded in the last hour: not known.")
}

// TestTheLastHourIsShown on the pages, as soon as there is a sample, without any viewer
// before.
func TestTheLastHourIsShown(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	heartbeat.Start(t, r.Store, balance.Member{Instance: "one", Topics: scanners(7, 0)[0].Topics})
	s := serve(t, r.Store, Config{Settings: settings()})
	check.Until(t, "a sample", func() bool {
		points, _ := s.console.samples.of("orders", time.Now())
		return len(points) > 0
	})
	_, page, _ := s.ask(http.MethodGet, "/topic/orders", nil)
	contains(t, page, "Forwarded in the last hour: 7/s at last, 7/s at least, 7/s at most. The table below",
		"This console has measured since", `<td class="n">7/s</td><td class="n">1`, `<path class="dashed" d="M`)
	_, page, _ = s.ask(http.MethodGet, "/", nil)
	contains(t, page, `<svg class="spark" viewBox="0 0 60 16"`, `aria-label="Forwarded in the last hour: 7/s at last`)
	if strings.Contains(page, "style=") {
		t.Error("a chart has an inline style, which the policy forbids")
	}
}
