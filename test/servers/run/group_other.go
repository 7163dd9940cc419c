//go:build unix && !linux

package main

import "syscall"

// groupAttr puts the command into a process group of its own. Only Linux can kill it with
// its parent.
func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
