package fleet

import "syscall"

// childAttr puts a child into a group of its own and has the kernel kill it
// when the thread that started it is gone.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
