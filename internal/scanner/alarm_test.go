package scanner

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/wait"
)

// TestAlarm tests the kernel's timer and Go's.
func TestAlarm(t *testing.T) {
	t.Parallel()
	spare := &alarm{rings: make(chan struct{}, 1)}
	spare.spare = time.AfterFunc(time.Hour, func() { kick(spare.rings) })
	for name, a := range map[string]*alarm{"as it comes": newAlarm(), "Go's": spare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer a.close()
			for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 0, -time.Hour} {
				begin := time.Now()
				a.set(d)
				wait.Receive(t, "a ring", a.rings)
				if took := time.Since(begin); took < d {
					t.Errorf("set to %s, it rang after %s", d, took)
				}
			}
			a.set(24 * time.Hour)
			a.set(time.Millisecond)
			wait.Receive(t, "a ring after the alarm was set again", a.rings)
			a.set(time.Millisecond)
			a.set(24 * time.Hour)
			select {
			case <-a.rings: // it rang before it was set again
			default:
			}
			a.set(0)
			wait.Receive(t, "a ring at once", a.rings)
		})
	}
}
