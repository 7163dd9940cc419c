package fleet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// held are the sockets of reserve: without a reference to them they would be
// closed.
var held sync.Map //nolint:gochecknoglobals // what is reserved is so for the whole process

// childAttr puts a child into a group of its own and has the kernel kill it
// when the thread that started it is gone.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reserve keeps a port from being chosen again, by this process or another,
// until this one ends. It holds the abstract socket by which package servers
// reserves the ports of its servers.
func reserve(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", fmt.Sprintf("@duefleet-test-port-%d", port))
	if err == nil {
		held.Store(port, l)
	}
	return err == nil
}
