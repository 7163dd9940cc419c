package wake

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestAlarm tests the kernel's timer and Go's.
func TestAlarm(t *testing.T) {
	t.Parallel()
	spare := &Alarms{}
	spare.timer = newTimer(spare.ring, false)
	for name, s := range map[string]*Alarms{"as it comes": {}, "Go's": spare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := s.New()
			defer a.Close()
			for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 0, -time.Hour} {
				begin := time.Now()
				a.Set(begin.Add(d))
				check.Receive(t, "a ring", a.Rings)
				if took := time.Since(begin); took < d {
					t.Errorf("set to %s, it rang after %s", d, took)
				}
			}
			set := func(d time.Duration) { a.Set(time.Now().Add(d)) }
			set(24 * time.Hour)
			set(time.Millisecond)
			check.Receive(t, "a ring after the alarm was set again", a.Rings)
			set(time.Millisecond)
			set(24 * time.Hour)
			select {
			case <-a.Rings: // it rang before it was set again
			default:
			}
			set(0)
			check.Receive(t, "a ring at once", a.Rings)
		})
	}
}

// TestManyAlarmsShareATimer: each rings, and none too early. Some are set twice, and some are
// closed before they ring. At the end the timer is closed.
func TestManyAlarmsShareATimer(t *testing.T) {
	t.Parallel()
	var s Alarms
	var ringing []*Alarm
	for i := range 200 {
		a := s.New()
		if i%2 == 0 {
			a.Set(time.Now().Add(24 * time.Hour))
		}
		if i%4 == 0 {
			a.Close()
			continue
		}
		a.Set(time.Now().Add(rand.N(50 * time.Millisecond)))
		ringing = append(ringing, a)
	}
	for _, a := range ringing {
		check.Receive(t, "a ring", a.Rings)
		if early := time.Until(a.at); early > 0 {
			t.Errorf("an alarm rang %s too early", early)
		}
		a.Close()
	}
	if _, set := s.later.First(); set || s.all != 0 || s.timer != nil {
		t.Errorf("%d alarms are left, set %t, timer %v", s.all, set, s.timer)
	}
}
