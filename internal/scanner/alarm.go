package scanner

import "time"

// alarm rings at an instant that is set, and can be set anew at any time. Go's own timers
// are up to a millisecond late in a process that sleeps, since its poller waits in whole
// milliseconds (netpoll_epoll.go of Go's runtime); a timer of the kernel's own isn't.
type alarm struct {
	// rings has room for one: a ring that was not heard before the alarm was set anew is
	// still there.
	rings chan struct{}
	timer kernelTimer
	spare *time.Timer // where the kernel has no timer to give
}

// newAlarm returns an alarm that isn't set. Close it when it is no longer used.
func newAlarm() *alarm {
	a := &alarm{rings: make(chan struct{}, 1)}
	if !a.timer.open(func() { kick(a.rings) }) {
		a.spare = time.AfterFunc(time.Hour, func() { kick(a.rings) })
		a.spare.Stop()
	}
	return a
}

// set has the alarm ring after d, at once if that is not above 0, and not when it was set
// to before.
func (a *alarm) set(d time.Duration) {
	if a.spare != nil {
		a.spare.Reset(d)
		return
	}
	a.timer.set(d)
}

// close ends the alarm; it rings no more.
func (a *alarm) close() {
	if a.spare != nil {
		a.spare.Stop()
		return
	}
	a.timer.close()
}
