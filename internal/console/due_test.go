package console

import (
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/test/check"
)

// TestBarsStayWhereTheyAre: all bars but the first begin at the same times a moment later,
// and they cover the window without a gap.
func TestBarsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, w := range windows() {
		spans, later := w.spans(now), w.spans(now.Add(100*time.Millisecond))
		check.Equal(t, "begin", spans[0].From, now)
		for i := range spans {
			if i > 0 && (spans[i].From != spans[i-1].To || spans[i] != later[i]) {
				t.Errorf("%s: bar %d is %v, then %v", w.name, i, spans[i], later[i])
			}
		}
		if last := spans[len(spans)-1]; last.To.Before(now.Add(w.length)) || len(spans) > 32 {
			t.Errorf("%s: %d bars to %s", w.name, len(spans), last.To)
		}
	}
}

// TestForecast says when most tasks fall due and when they are done.
func TestForecast(t *testing.T) {
	t.Parallel()
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	peak := []admin.DueSpan{{From: midnight.Add(-time.Hour), To: midnight, Tasks: 10},
		{From: midnight, To: midnight.Add(time.Hour), Tasks: 400_000}}
	for _, c := range []struct {
		spans  []admin.DueSpan
		status admin.TopicStatus
		want   string
	}{
		{peak, admin.TopicStatus{PerSecond: 1111}, "Most fall due from 00:00 to 01:00 UTC: 400,000 tasks; at the rate of " +
			"the last minute, 1,111/s, that takes 6 min: until 00:06:00 UTC if all are due at once."},
		{peak, admin.TopicStatus{}, "Most fall due from 00:00 to 01:00 UTC: 400,000 tasks."},
		{peak[:1], admin.TopicStatus{Paused: true, PerSecond: 5, Backlog: 3}, "The topic is paused, so what falls due " +
			"waits. Most fall due from 23:00 to 00:00 UTC: 10 tasks."},
		{nil, admin.TopicStatus{PerSecond: 10, Backlog: 300}, "300 tasks are due now: at the rate of the last minute, " +
			"10/s, that takes 30 s. Nothing falls due within the next day."},
	} {
		check.Equal(t, "words", strings.Join(forecast(c.spans, c.status, "day"), " "), c.want)
	}
}
