package config

import (
	"testing"
	"time"
)

// TestAPauseMayHaveAnEnd: only a time with a zone is valid, in quotes or not.
func TestAPauseMayHaveAnEnd(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for doc, want := range map[string]time.Time{
		"paused: true\npaused_until: 2026-12-01T10:00:00Z\n":            end,
		"paused: true\npaused_until: \"2026-12-01T11:00:00.000+01:00\"": end,
		`{"paused": true, "paused_until": "2026-12-01T10:00:00Z"}`:      end,
		"paused: false\npaused_until: 2026-12-01T10:00:00Z\n":           {},
		"paused: true\npaused_until: ''\npaused_reason: \"it's: on\"\n": {},
	} {
		topic, err := ParseTopic("orders", []byte(doc))
		if got := topic.PauseEnds(); err != nil || !got.Equal(want) {
			t.Errorf("%q ends at %s, %v; want %s", doc, got, err, want)
		}
	}
	for doc, want := range map[string]string{
		"paused_until: 2h":                   `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2h"`,
		"paused_until: 2026-12-01":           `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2026-12-01"`,
		"paused_until: 2026-12-01T10:00:00 ": `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2026-12-01T10:00:00"`,
	} {
		_, err := ParseTopic("orders", []byte(doc))
		wantLines(t, err, want)
	}
}
