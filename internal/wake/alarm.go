package wake

import "time"

// Alarm rings at a set time, which may be changed at any moment. In a process that
// sleeps, Go's own timers are up to a millisecond late, because Go's poller waits in
// whole milliseconds (netpoll_epoll.go of Go's runtime). A kernel timer isn't.
type Alarm struct {
	// Rings has room for one ring. A ring that wasn't received before the alarm was set
	// again is still there.
	Rings Signal
	timer kernelTimer
	spare *time.Timer // used where the kernel gives no timer
}

// NewAlarm returns an alarm that isn't set. Close it after use.
func NewAlarm() *Alarm {
	a := &Alarm{Rings: NewSignal()}
	if !a.timer.open(a.Rings.Send) {
		a.useSpare()
	}
	return a
}

// useSpare makes the alarm ring by Go's timer.
func (a *Alarm) useSpare() {
	a.spare = time.AfterFunc(time.Hour, a.Rings.Send)
	a.spare.Stop()
}

// Set makes the alarm ring after d, or at once if d is 0 or less. It replaces the time
// set before.
func (a *Alarm) Set(d time.Duration) {
	if a.spare != nil {
		a.spare.Reset(d)
		return
	}
	a.timer.set(d)
}

// Close ends the alarm; it rings no more.
func (a *Alarm) Close() {
	if a.spare != nil {
		a.spare.Stop()
		return
	}
	a.timer.close()
}
