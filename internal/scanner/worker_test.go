package scanner

import (
	"testing"
	"time"
)

// A tick that was cut short is followed by its rest, so that workers keep their beat;
// a tick that is late, or has another length by now, begins a new one.
func TestNextEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct{ end, tick, want time.Duration }{
		"in time":                 {0, time.Second, time.Second},
		"a little late":           {-10 * time.Millisecond, time.Second, 990 * time.Millisecond},
		"later than a tick":       {-1500 * time.Millisecond, time.Second, time.Second},
		"cut short":               {300 * time.Millisecond, time.Second, 300 * time.Millisecond},
		"cut short, shorter now":  {30 * time.Second, time.Second, time.Second},
		"cut short, longer now":   {300 * time.Millisecond, time.Minute, 300 * time.Millisecond},
		"exactly a tick too late": {-time.Second, time.Second, time.Second},
	} {
		if got := nextEnd(now.Add(c.end), now, c.tick).Sub(now); got != c.want {
			t.Errorf("%s: the tick ends in %s, want %s", name, got, c.want)
		}
	}
}
