package console

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestNumbersHaveUnits: and commas for thousands.
func TestNumbersHaveUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"},
		{rate(0), "0/s"}, {rate(.25), "0.25/s"}, {rate(9.96), "10/s"}, {rate(12345.6), "12,346/s"},
		{seconds(0), "–"}, {seconds(.00025), "250 µs"}, {seconds(.0123), "12.3 ms"}, {seconds(2.5), "2.5 s"},
		{seconds(7200), "2 h"},
		{skew(1.5), "+50 %"}, {skew(.999), "+0 %"}, {skew(0), "-100 %"},
		{span(-time.Second), "0 s"}, {span(119 * time.Second), "119 s"}, {span(50 * time.Hour), "2 d"},
		{string(moment(time.Time{})), "–"},
		{string(moment(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))),
			`<time datetime="2026-01-02T03:04:05Z">2026-01-02 03:04:05 UTC</time>`},
	} {
		check.Equal(t, "text", c.got, c.want)
	}
}
