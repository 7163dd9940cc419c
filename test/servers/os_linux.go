package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
)

// childAttr puts a child into a process group of its own. The kernel kills the child when
// the thread that started it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reserve keeps other processes that use this package from choosing port, whether or not
// a server listens on it. The reservation is an abstract socket, which leaves no file
// behind. It ends with Close, or when this process ends.
func reserve(ctx context.Context, port int) (io.Closer, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "unix", fmt.Sprintf("@duefleet-test-port-%d", port))
}
