package duetime

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

func TestAt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"2026-12-01T10:00:00Z":           1796119200000,
		"2026-12-01T11:00:00+01:00":      1796119200000,
		"2026-12-01T10:00:00.250Z":       1796119200250,
		"2026-12-01T10:00:00.123456789Z": 1796119200123,
		"1796119200000":                  1796119200000,
		"0":                              0,
		"-1":                             -1,
		"999999999":                      999999999,
		"4100000001":                     4100000001,
		"9223372036854775807":            9223372036854775807,
	} {
		got, err := At(text)
		if err != nil || got.UnixMilli() != want {
			t.Errorf("%q: got %v, %v; want %v", text, got.UnixMilli(), err, want)
		}
	}
	for _, text := range []string{
		"", "now", "2026-12-01", "2026-12-01 10:00:00Z", "2026-12-01T10:00:00", "2026-13-01T10:00:00Z",
		"1000000000", "1796119200", "4100000000", "1796119200.5", "1.7e12", "9223372036854775808", "0x10", "30m",
		" 1796119200000",
	} {
		if got, err := At(text); err == nil {
			t.Errorf("%q: taken as %v", text, got)
		}
	}
}

// FuzzWhen: no text makes the parsers of due times panic. Without days a duration has the
// value that Go's parser returns.
func FuzzWhen(f *testing.F) {
	for _, text := range []string{
		"30m", "1h30m", "500ms", "0", "-5m", "2d", "1.5d", "1d12h", "-1d12h", "+1d", "36525d", "106751d", "106752d",
		"106751d24h", ".d", "1d.", "--2d",
		"2026-12-01T10:00:00Z", "2026-12-01T11:00:00+01:00", "1796119200000", "-1", "9223372036854775807", "NaNd", "0x1d",
		"1_0d", "-2562047h47m16.854775808s",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = At(text)
		in, err := Span(text)
		if err != nil {
			return
		}
		if got := strings.HasPrefix(text, "-"); got != (in < 0) && in != 0 {
			t.Fatalf("in %q: %s has another sign", text, in)
		}
		if plain, err := time.ParseDuration(text); !strings.Contains(text, "d") && (err != nil || plain != in) {
			t.Fatalf("in %q: got %s, want %s, %v", text, in, plain, err)
		}
	})
}
