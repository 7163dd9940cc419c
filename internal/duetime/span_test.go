package duetime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/duetime"
)

func TestSpan(t *testing.T) {
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
		"-1.5d":    -36 * time.Hour,
		"1d12h":    36 * time.Hour,
		"-1d12h":   -36 * time.Hour,
		"+1d":      24 * time.Hour,
		"36525d":   36525 * 24 * time.Hour,
		"1d0.5s":   24*time.Hour + 500*time.Millisecond,
		"0d1h":     time.Hour,
		"106751d":  106751 * 24 * time.Hour,
		"0.25d10m": 6*time.Hour + 10*time.Minute,
		"1e3d":     1000 * 24 * time.Hour,
		"7e-1d":    16*time.Hour + 48*time.Minute,
		"-1E+1d":   -240 * time.Hour,
		"0x1p1d":   48 * time.Hour,
		"1_000d":   1000 * 24 * time.Hour,
	} {
		got, err := duetime.Span(text)
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestSpanRefuses(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"want a duration with a unit, as in 30s, 30m or 2d": {"30", "-30", "1.5", "1e3"},
		duetime.SpanForm: {
			"", "d", "m", "30 m", "2d2d", "1h2d", "2D", "2days", "--2d", "+-2d", "2d-1h", "2d+1h", "1hd", "1x",
			"106752d", "999999999999d", "106751d24h", "NaNd", "nand", "Infd", "0x1d", "1e9d", "１d", ".d",
			"tomorrow", "2026-12-01T10:00:00Z",
		},
	} {
		for _, text := range texts {
			if got, err := duetime.Span(text); err == nil || err.Error() != want {
				t.Errorf("%q: got %v, %v; want %s", text, got, err, want)
			}
		}
	}
}

// TestSpanProperty: Span returns the value of every text that time.ParseDuration accepts.
// Days in front add 24 hours each, and a minus sign negates the whole.
func TestSpanProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "part"))
		days := rapid.IntRange(0, 36525).Draw(t, "days")
		text, want := part.String(), part
		if rapid.Bool().Draw(t, "with days") {
			text, want = fmt.Sprintf("%dd%s", days, part), time.Duration(days)*24*time.Hour+part
		}
		if rapid.Bool().Draw(t, "negative") {
			text, want = "-"+text, -want
		}
		if got, err := duetime.Span(text); err != nil || got != want {
			t.Fatalf("%s: got %v, %v; want %v", text, got, err, want)
		}
	})
}

// TestSpanAnyText: any text either has the sign of its duration or is refused.
func TestSpanAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[+-]?[0-9.ehdmsx+-]{0,12}`).Draw(t, "text")
		d, err := duetime.Span(text)
		if err == nil && d != 0 && strings.HasPrefix(text, "-") != (d < 0) {
			t.Fatalf("%s: got %v", text, d)
		}
		if plain, plainErr := time.ParseDuration(text); plainErr == nil && (err != nil || d != plain) {
			t.Fatalf("%s: got %v, %v; want %v", text, d, err, plain)
		}
	})
}
