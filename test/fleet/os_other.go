//go:build !linux

package fleet

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// childAttr puts a child into a process group of its own.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reserve does nothing here: only Linux has abstract sockets.
func reserve(context.Context, int) bool { return true }

// openTerminal works on Linux only.
func openTerminal(_, _ int) (ours, programs *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}
