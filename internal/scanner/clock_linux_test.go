package scanner

import (
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/selfcheck"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAWrongClockOfRedisIsReported: Redis's clock is ahead when a scanner starts. Then it is
// set behind, and right. Status, /readyz, the metrics and the log report it while it is
// wrong. The text says when it was set, if the scanner saw that.
func TestAWrongClockOfRedisIsReported(t *testing.T) {
	t.Parallel()
	server, set := servertest.RedisWithClock(t, filepath.Join("..", "..", "test", "chaos", "testdata", "clock.c"))
	set(2 * time.Minute)
	l := loneOn(t, server)
	l.clock.Every = 10 * time.Millisecond
	l.start()
	reported := func(text string) (found problem.Problem) {
		t.Helper()
		check.Until(t, "the problem: "+text, func() bool {
			found = l.problem(problem.ClockOffset, "")
			return strings.Contains(found.Text, text)
		})
		return found
	}
	offset := func(want time.Duration) {
		t.Helper()
		if got := l.value("duefleet_redis_clock_offset_seconds"); math.Abs(got-want.Seconds()) > 1 {
			t.Errorf("the metric shows an offset of %v s, want %s", got, want)
		}
	}
	const ahead = "redis's clock is 2m0s ahead of this machine's"
	found := reported(ahead)
	if found.Severity != problem.Degraded || found.Facts["offset_seconds"] != "120.0" ||
		!strings.Contains(found.Text, "too early") || strings.Contains(found.Text, "moved") {
		t.Errorf("%+v", found)
	}
	offset(2 * time.Minute)
	l.sees(true, "clock_offset")
	if status, body := l.ask("/readyz"); status != http.StatusOK || !strings.Contains(body, "clock: down (optional)") {
		t.Errorf("/readyz: %d, %q", status, body)
	}
	if lines := l.said.Lines("level=WARN msg=\"redis's clock"); len(lines) != 1 || !strings.Contains(lines[0], ahead) {
		t.Errorf("the log tells %q", lines)
	}
	began := time.Now().Add(-selfcheck.ClockLimit) // a reading may have begun before, and be answered after
	set(-time.Minute)
	found = reported("redis's clock is 1m0s behind this machine's")
	if !strings.Contains(found.Text, "too late") || !strings.Contains(found.Text, "; it moved by -3m0s at ") ||
		found.Since.Before(began) || time.Since(found.Since) < 0 {
		t.Errorf("set after %s: %+v", began, found)
	}
	offset(-time.Minute)
	set(0)
	l.sees(false, "clock_offset")
	check.Until(t, "its end in status", func() bool { return l.problem(problem.ClockOffset, "").Kind == "" })
	offset(0)
	if lines := l.said.Lines("agree again"); len(lines) != 1 {
		t.Errorf("the log tells %q", lines)
	}
}
