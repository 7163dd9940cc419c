package faults

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Blackhole returns an address to which no connection comes up: the kernel drops the packets
// for a listener whose queue is full.
func Blackhole(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	at, named := syscall.Getsockname(fd)
	if err = errors.Join(err, named); err != nil {
		t.Fatal(err)
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return addr // the queue is full
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
