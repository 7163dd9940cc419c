//go:build unix && !linux

package servers

import (
	"context"
	"io"
	"syscall"
)

// childAttr puts a child into a process group of its own. Only Linux can kill it with its
// parent.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reserve does nothing here: only Linux has abstract sockets.
func reserve(context.Context, int) (io.Closer, error) {
	return io.NopCloser(nil), nil
}
