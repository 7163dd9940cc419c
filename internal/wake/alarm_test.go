package wake

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestAlarm tests the kernel's timer and Go's.
func TestAlarm(t *testing.T) {
	t.Parallel()
	spare := &Alarm{Rings: NewSignal()}
	spare.useSpare()
	for name, a := range map[string]*Alarm{"as it comes": NewAlarm(), "Go's": spare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer a.Close()
			for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 0, -time.Hour} {
				begin := time.Now()
				a.Set(d)
				check.Receive(t, "a ring", a.Rings)
				if took := time.Since(begin); took < d {
					t.Errorf("set to %s, it rang after %s", d, took)
				}
			}
			a.Set(24 * time.Hour)
			a.Set(time.Millisecond)
			check.Receive(t, "a ring after the alarm was set again", a.Rings)
			a.Set(time.Millisecond)
			a.Set(24 * time.Hour)
			select {
			case <-a.Rings: // it rang before it was set again
			default:
			}
			a.Set(0)
			check.Receive(t, "a ring at once", a.Rings)
		})
	}
}
