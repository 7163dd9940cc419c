package main

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30m":      30 * time.Minute,
		"1h30m":    90 * time.Minute,
		"500ms":    500 * time.Millisecond,
		"0":        0,
		"0s":       0,
		"-5m":      -5 * time.Minute,
		"2d":       48 * time.Hour,
		"1.5d":     36 * time.Hour,
		"1d12h":    36 * time.Hour,
		"-1d12h":   -36 * time.Hour,
		"+1d":      24 * time.Hour,
		"36525d":   36525 * 24 * time.Hour,
		"1d0.5s":   24*time.Hour + 500*time.Millisecond,
		"0d1h":     time.Hour,
		"106751d":  106751 * 24 * time.Hour,
		"0.25d10m": 6*time.Hour + 10*time.Minute,
	} {
		w, err := parseIn(text)
		if err != nil || w.in != want || !w.relative {
			t.Errorf("%q: got %v, %v; want %v", text, w.in, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "30", "m", "30 m", "2d2d", "1h2d", "2D", "2days", "--2d", "+-2d", "2d-1h", "2d+1h", "1hd", "1e3d",
		"106752d", "999999999999d", "106751d24h", "NaNd", "Infd", "0x1d", "1_0d", "１d", "2026-12-01T10:00:00Z",
	} {
		if w, err := parseIn(text); err == nil {
			t.Errorf("%q: taken as %v", text, w.in)
		}
	}
}

// TestParseInProperty: what time.Duration prints is read back, and a day in
// front of it adds 24 hours.
func TestParseInProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "part"))
		days := rapid.IntRange(0, 36525).Draw(t, "days")
		w, err := parseIn(fmt.Sprintf("%dd%s", days, part))
		if want := time.Duration(days)*24*time.Hour + part; err != nil || w.in != want {
			t.Fatalf("got %v, %v; want %v", w.in, err, want)
		}
	})
}

func TestParseAt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"2026-12-01T10:00:00Z":           1796119200000,
		"2026-12-01T11:00:00+01:00":      1796119200000,
		"2026-12-01T10:00:00.250Z":       1796119200250,
		"2026-12-01T10:00:00.123456789Z": 1796119200123,
		"1796119200000":                  1796119200000,
		"0":                              0,
		"-1":                             -1,
		"9223372036854775807":            9223372036854775807,
	} {
		w, err := parseAt(text)
		if err != nil || w.at.UnixMilli() != want || w.relative {
			t.Errorf("%q: got %v, %v; want %v", text, w.at.UnixMilli(), err, want)
		}
	}
	for _, text := range []string{
		"", "now", "2026-12-01", "2026-12-01 10:00:00Z", "2026-12-01T10:00:00", "2026-13-01T10:00:00Z",
		"1796119200.5", "1.7e12", "9223372036854775808", "0x10", "30m", " 1796119200000",
	} {
		if w, err := parseAt(text); err == nil {
			t.Errorf("%q: taken as %v", text, w.at)
		}
	}
}

func TestWhenDue(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796119200000)
	if due := (when{relative: true, in: time.Minute}).due(now); !due.Equal(now.Add(time.Minute)) {
		t.Errorf("relative: %v", due)
	}
	at := now.Add(-time.Hour)
	if due := (when{at: at}).due(now); !due.Equal(at) {
		t.Errorf("absolute: %v", due)
	}
}
