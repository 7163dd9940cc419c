package scanner

import "time"

// alarm rings at a set time, which may be changed at any moment. In a process that
// sleeps, Go's own timers are up to a millisecond late, because Go's poller waits in
// whole milliseconds (netpoll_epoll.go of Go's runtime). A kernel timer isn't.
type alarm struct {
	// rings has room for one ring. A ring that wasn't received before the alarm was set
	// again is still there.
	rings chan struct{}
	timer kernelTimer
	spare *time.Timer // used where the kernel gives no timer
}

// newAlarm returns an alarm that isn't set. Close it after use.
func newAlarm() *alarm {
	a := &alarm{rings: make(chan struct{}, 1)}
	if !a.timer.open(func() { kick(a.rings) }) {
		a.spare = time.AfterFunc(time.Hour, func() { kick(a.rings) })
		a.spare.Stop()
	}
	return a
}

// set makes the alarm ring after d, or at once if d is 0 or less. It replaces the time
// set before.
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
