package ratelog

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLinesOfOneKindAreBounded: the first line is written at once, and the others are
// counted once a minute. After a quiet minute the next line counts as a first one again.
func TestLinesOfOneKindAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := New(slog.New(slog.NewTextHandler(&log, nil)), slog.LevelError, "task parked")
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			n.mu.Lock() // lines are written while it is held
			defer n.mu.Unlock()
			got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			log.Reset()
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d: %q", len(got), len(want), got)
			}
			for i := range want {
				if !strings.HasSuffix(got[i], `level=ERROR msg="task parked" `+want[i]) {
					t.Errorf("line %d: %s, want %s", i, got[i], want[i])
				}
			}
		}
		for i := range 20_000 {
			n.Log(t.Context(), "id", i)
		}
		lines("id=0")
		time.Sleep(interval)
		lines("id=19999 more=19998")
		n.Log(t.Context(), "id", 7)
		time.Sleep(interval)
		lines("id=7 more=0")
		time.Sleep(2 * interval)
		n.Log(t.Context(), "id", 8)
		lines("id=8")
	})
}
