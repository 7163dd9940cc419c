package fleet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// held keeps the sockets of reserve referenced: the garbage collector would close them.
var held sync.Map //nolint:gochecknoglobals // a port stays reserved for the whole process

// childAttr puts a child into a process group of its own. The kernel kills the child when
// the thread that started it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reserve keeps this process and others from choosing a port again until this process
// ends. It holds an abstract socket, in the same way as package servers reserves ports.
func reserve(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", fmt.Sprintf("@duefleet-test-port-%d", port))
	if err == nil {
		held.Store(port, l)
	}
	return err == nil
}
