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
	pool := NewPool(1)
	t.Cleanup(pool.Close)
	spare := NewAlarms(pool)
	spare.timer = newTimer(spare.ring, false)
	for name, s := range map[string]*Alarms{"as it comes": NewAlarms(pool), "Go's": spare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rings := NewSignal()
			a := s.New(rings.Send)
			defer a.Close()
			for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 0, -time.Hour} {
				begin := time.Now()
				a.Set(begin.Add(d))
				check.Receive(t, "a ring", rings)
				if took := time.Since(begin); took < d {
					t.Errorf("set to %s, it rang after %s", d, took)
				}
			}
			set := func(d time.Duration) { a.Set(time.Now().Add(d)) }
			set(24 * time.Hour)
			set(time.Millisecond)
			check.Receive(t, "a ring after the alarm was set again", rings)
			set(time.Millisecond)
			set(24 * time.Hour)
			select {
			case <-rings: // it rang before it was set again
			default:
			}
			set(0)
			check.Receive(t, "a ring at once", rings)
		})
	}
}

// TestManyAlarmsShareATimer: each rings, and none too early. Some are set twice, and some are
// closed before they ring. At the end the timer is closed.
func TestManyAlarmsShareATimer(t *testing.T) {
	t.Parallel()
	pool := NewPool(1)
	defer pool.Close()
	s, ringing := NewAlarms(pool), map[*Alarm]Signal{}
	for i := range 200 {
		rings := NewSignal()
		a := s.New(rings.Send)
		if i%2 == 0 {
			a.Set(time.Now().Add(24 * time.Hour))
		}
		if i%4 == 0 {
			a.Close()
			continue
		}
		a.Set(time.Now().Add(rand.N(50 * time.Millisecond)))
		ringing[a] = rings
	}
	for a, rings := range ringing {
		check.Receive(t, "a ring", rings)
		if early := time.Until(a.at); early > 0 {
			t.Errorf("an alarm rang %s too early", early)
		}
		a.Close()
	}
	if _, set := s.later.First(); set || s.all != 0 || s.timer != nil {
		t.Errorf("%d alarms are left, set %t, timer %v", s.all, set, s.timer)
	}
}
