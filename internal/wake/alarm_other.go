//go:build !linux

package wake

import "time"

// kernelTimer doesn't exist on this system: Go's timers are used.
type kernelTimer struct{}

func (*kernelTimer) open(func()) bool  { return false }
func (*kernelTimer) set(time.Duration) {}
func (*kernelTimer) close()            {}
