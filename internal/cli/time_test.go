package cli

import (
	"testing"
	"time"
)

func TestMomentsAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2026-12-01T11:00:00+01:00": now,
		"1796119200000":             now,
		"30m":                       now.Add(30 * time.Minute),
		"-1h":                       now.Add(-time.Hour),
		"2d":                        now.Add(48 * time.Hour),
		"1d12h":                     now.Add(36 * time.Hour),
		"-1.5d":                     now.Add(-36 * time.Hour),
		"0":                         time.UnixMilli(0),
	} {
		if got, err := ParseMoment("--due-before", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"d", "1x", "1796119200", "nand", "1e9d", "tomorrow", "2026-12-01"} {
		if got, err := ParseMoment("--due-before", text, now); err == nil {
			t.Errorf("%s: got %s", text, got)
		}
	}
}
