package didyoumean

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

func TestTypos(t *testing.T) {
	t.Parallel()
	names := []string{"orders", "invoices.eu", "t38", "jobs1"}
	for name, want := range map[string]string{
		"order": "orders", "odrers": "", "ordrs": "orders", "invoice.eu": "invoices.eu",
		"invoces.ue": "", "t39": "", "jobs2": "", "jobs": "", "mails": "", "ord": "",
	} {
		if got := Of(name, names); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestDistance: it is a metric, and an edit of one byte adds 1 at most.
func TestDistance(t *testing.T) {
	t.Parallel()
	check.Equal(t, "kitten to sitting", Distance("kitten", "sitting"), 3)
	check.Equal(t, "from nothing", Distance("", "abc"), 3)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching("[a-c]{0,8}")
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab := Distance(a, b)
		if (ab == 0) != (a == b) || ab != Distance(b, a) || ab > Distance(a, c)+Distance(c, b) {
			t.Errorf("%q and %q: %d", a, b, ab)
		}
		at := rapid.IntRange(0, len(a)).Draw(t, "at")
		if more := Distance(a[:at]+"d"+a[at:], b); more < ab-1 || more > ab+1 {
			t.Errorf("%q and %q: %d, and %d with one byte more", a, b, ab, more)
		}
	})
}
