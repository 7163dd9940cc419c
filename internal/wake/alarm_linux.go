package wake

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelTimer is a timer with a file descriptor, for which Go's poller waits as for its
// sockets (timerfd_create(2)).
type kernelTimer struct {
	fd   int
	file *os.File
	done chan struct{}
}

// open calls ring from its own goroutine whenever the timer expires. It returns false if
// the process can't open another file.
func (k *kernelTimer) open(ring func()) bool {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return false
	}
	k.fd, k.file, k.done = fd, os.NewFile(uintptr(fd), "timer"), make(chan struct{})
	go func() {
		defer close(k.done)
		var expired [8]byte // how often it expired
		for {
			if _, err := k.file.Read(expired[:]); err != nil {
				return // the timer was closed
			}
			ring()
		}
	}()
	return true
}

func (k *kernelTimer) set(d time.Duration) {
	in := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would stop the timer
	_ = unix.TimerfdSettime(k.fd, 0, &in, nil)                          // fails for invalid times only
}

func (k *kernelTimer) close() {
	_ = k.file.Close()
	<-k.done
}
