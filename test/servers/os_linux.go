package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
)

// childAttr puts a child into a group of its own and has the kernel kill it
// when the thread that started it is gone.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reserve keeps other processes that use this package from choosing port until
// the result is closed or this process ends, also while no server listens
// there. It holds an abstract socket, which leaves no file behind.
func reserve(ctx context.Context, port int) (io.Closer, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "unix", fmt.Sprintf("@duefleet-test-port-%d", port))
}
