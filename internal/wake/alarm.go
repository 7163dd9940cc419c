package wake

import (
	"sync"
	"time"
)

// Alarms rings many alarms by one timer. In a process that sleeps, Go's own timers are up to a
// millisecond late, because Go's poller waits in whole milliseconds (netpoll_epoll.go of Go's
// runtime). A kernel timer isn't.
type Alarms struct {
	pool  *Pool // in which they ring
	mu    sync.Mutex
	all   int            // alarms that aren't closed
	later ByTime[*Alarm] // the alarms that are set
	timer *timer         // open while there are alarms
	rings time.Time
}

// NewAlarms returns alarms that ring in goroutines of a pool. Close them all before the pool.
func NewAlarms(pool *Pool) *Alarms { return &Alarms{pool: pool} }

// Alarm rings at a set time, which may be changed at any moment. A ring may come late, after the
// alarm was set again or closed.
type Alarm struct {
	ring  func()
	of    *Alarms
	at    time.Time
	place int // in later
}

// When implements Timed.
func (a *Alarm) When() time.Time { return a.at }

// Place implements Timed.
func (a *Alarm) Place() *int { return &a.place }

// New returns an alarm that calls ring, and isn't set. Close it after use.
func (s *Alarms) New(ring func()) *Alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all++; s.timer == nil {
		s.timer, s.rings = newTimer(s.ring, true), time.Time{}
	}
	return &Alarm{ring: ring, of: s}
}

// Set makes the alarm ring at a time, or at once if that is over. It replaces the time set
// before.
func (a *Alarm) Set(at time.Time) {
	s := a.of
	s.mu.Lock()
	defer s.mu.Unlock()
	a.at = at
	s.later.Put(a)
	s.rearm()
}

// Close ends the alarm; it begins to ring no more.
func (a *Alarm) Close() {
	if timer := a.remove(); timer != nil {
		timer.close()
	}
}

// remove takes the alarm out. It returns the timer if no alarm is left.
func (a *Alarm) remove() (unused *timer) {
	s := a.of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later.Remove(a)
	if s.all--; s.all == 0 {
		unused, s.timer = s.timer, nil
	}
	return unused
}

// ring rings the alarms whose time has come.
func (s *Alarms) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rings = time.Time{}
	now := time.Now()
	for a, due := s.later.Take(now); due; a, due = s.later.Take(now) {
		s.pool.Go(a.ring)
	}
	s.rearm()
}

// rearm sets the timer to the first alarm. If it rings sooner, it is set then.
func (s *Alarms) rearm() {
	first, there := s.later.First()
	if there && s.timer != nil && (s.rings.IsZero() || first.at.Before(s.rings)) {
		s.timer.set(time.Until(first.at))
		s.rings = first.at
	}
}

// timer is a timer of the kernel, or of Go where the kernel gives none.
type timer struct {
	kernel kernelTimer
	spare  *time.Timer // nil: the kernel's is used
}

func newTimer(ring func(), kernel bool) *timer {
	t := &timer{}
	if !kernel || !t.kernel.open(ring) {
		t.spare = time.AfterFunc(time.Hour, ring)
		t.spare.Stop()
	}
	return t
}

// set makes the timer ring after d, or at once if d is 0 or less.
func (t *timer) set(d time.Duration) {
	if t.spare != nil {
		t.spare.Reset(d)
		return
	}
	t.kernel.set(d)
}

func (t *timer) close() {
	if t.spare != nil {
		t.spare.Stop()
		return
	}
	t.kernel.close()
}
