package main

import "syscall"

// groupAttr puts the command into a process group of its own. The kernel kills the
// command when withservers is gone.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
